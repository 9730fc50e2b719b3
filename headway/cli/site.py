"""Commands about the site: up, serve, down."""

import click

from headway.cli.inputs import agreed, this_site
from headway.cli.output import as_json, print_json, say, silent


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["slurm"]),
    help="On a submit host: every run goes to this scheduler, and none to this machine.",
)
@as_json
def up(engine: str | None, machine: bool) -> None:
    """Start the site on this machine.

    That is the database, Prefect's server, gateway, guard and worker; on a machine that has joined
    a site elsewhere, its guard and worker. What already runs with the same settings stays as it is.

    Examples:
      headway up
      headway up --engine slurm
    """
    from headway.admin.engines import lead_to_engine
    from headway.admin.up import bring_up

    site = this_site()
    tell = silent if machine else say
    report = bring_up(site, say=tell)
    if engine is not None:
        lead_to_engine(site, tell)
    if machine:
        print_json(report)
        return
    if report["weaknesses"]:
        say(f"what the runtime {report['runtime']} does not guarantee here:")
    for weakness in report["weaknesses"]:
        say(f"  {weakness}")
    if site.settings.is_guest:
        say(f"node {report['node']} is up; its site is at {report['url']}")
    else:
        say(f"the site is up: {report['url']}; its gateway, for users: {report['gateway']}")
        say(f"Prefect's page asks for a password: the line in {report['auth_file']}")
        say(f"the gateway's page asks for a token: yours is the line in {site.settings.token_file}")
        say(f"for Prefect's own commands type `{report['prefect']} …`")
        click.echo(
            "submit a job with `headway submit job.yaml`, stop all of it with `headway down`"
        )


@click.command()
def upgrade() -> None:
    """Bring the running site to the headway that is installed.

    Runs go on, and what waits stays in the queue. The databases are first written to a file in
    `backups` of the home; where something fails, they and the site of before are brought back.
    Install the new headway beside the old one, not over it: only then can that be started again.
    Where systemd or compose keeps the site, only the databases are changed: restart its services.

    Examples:
      headway upgrade
      HEADWAY_HOME=/srv/headway headway upgrade
    """
    from headway.admin.upgrade import upgrade as upgrade_site

    file = upgrade_site(this_site(), say)
    kept = f"; the databases as they were before are in {file}" if file is not None else ""
    say(f"upgraded{kept}")


@click.command()
@click.option(
    "--only",
    type=click.Choice(["api", "services", "scheduler"]),
    help="One of several API processes that share a Redis, what runs beside them, or the scheduler "
    "of this node's pool, which stands by while another one leads.",
)
def serve(*, only: str | None) -> None:
    """Run the site's Prefect server in the foreground, for systemd.

    Examples:
      headway serve
      headway serve --only scheduler
    """
    from headway.admin.up import serve_part, serve_scheduler, serve_site

    site = this_site()
    settings = site.settings
    if only is None:
        serve_site(settings)
    if only == "scheduler":
        serve_scheduler(settings, site.clock)
    serve_part(settings, services=only == "services")


@click.command()
@click.option("--wait", is_flag=True, help="Wait until what runs here has ended.")
@click.option("--stop", is_flag=True, help="Stop what runs here; it goes back to the queue.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def down(*, wait: bool, stop: bool, yes: bool, machine: bool) -> None:
    """Stop the site on this machine; running programs go on.

    It first says what runs, and whose it is, and asks. The next `headway up` takes the containers
    up again: the guard stays for them, and so does the site's own database. With --stop each
    program gets its grace time, and its run waits for another attempt, which continues from its
    checkpoint. The queue is kept.

    Examples:
      headway down
      headway down --stop --yes
    """
    from headway.admin.down import AtDown, take_down

    if wait and stop:
        raise click.UsageError("either --wait for what runs or --stop it: give one of them")
    then = AtDown.WAIT if wait else AtDown.STOP if stop else AtDown.GO_ON
    agree = agreed("stop, and go back to the queue" if stop else _GO_ON, yes=yes or wait)
    report = take_down(this_site(), silent if machine else say, then, agree)
    if machine:
        print_json(report)


_GO_ON = "go on without the site, and `headway up` takes them up"
