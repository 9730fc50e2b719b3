"""Commands about the site: up, down, demo, nodes, prune."""

import sys
from typing import TYPE_CHECKING

import click

from headway.cli.inputs import agreed, open_client, this_site
from headway.cli.output import as_json, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headway.ledger.records import RunRecord
    from headway.policy.retention import Removal
    from headway.site import Site

    _Place = tuple[
        Callable[[float | None, int | None], list[Removal]],  # what goes by these limits
        Callable[[str], bool],  # removes one run
    ]


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["slurm"]),
    help="On a submit host: every run goes to this scheduler, and none to this machine.",
)
@as_json
def up(engine: str | None, machine: bool) -> None:
    """Bring up the site on this machine: database, server, gateway, guard and worker.

    On a machine that has joined a site elsewhere its guard and worker alone. What runs already is
    left as it is.
    """
    from headway.admin.up import bring_up

    site = this_site()
    tell = _silent if machine else say
    report = bring_up(site, say=tell)
    if engine is not None:
        from headway.admin.engines import lead_to_engine

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
        say(f"its page asks for a password once: the line in {report['auth_file']}")
        say(f"the gateway's for a token: yours is the line in {site.settings.token_file}")
        say(f"for Prefect's own commands type `{report['prefect']} …`")
        click.echo(
            "submit a job with `headway submit job.yaml`, stop all of it with `headway down`"
        )


@click.command()
@click.option(
    "--only",
    type=click.Choice(["api", "services", "scheduler"]),
    help="One of several API processes that share a Redis, what runs beside them, or the scheduler "
    "of this node's pool, which stands by while another one leads.",
)
def serve(*, only: str | None) -> None:
    """Be the site's Prefect server in the foreground, for systemd and containers."""
    from headway.admin.serving import serve_part, serve_scheduler, serve_site

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
    """Stop the site on this machine, after it has said what runs and whose it is, and asked.

    Containers go on, and the next `headway up` takes them up: the guard stays for them, and the
    site's own database. With --stop each gets its grace time, and its run waits for another
    attempt, which goes on from its checkpoint. What waits stays in the queue.
    """
    from headway.admin.down import AtDown, take_down

    if wait and stop:
        raise click.UsageError("either --wait for what runs or --stop it: give one of them")
    then = AtDown.WAIT if wait else AtDown.STOP if stop else AtDown.GO_ON
    agree = agreed("stop, and go back to the queue" if stop else _GO_ON, yes=yes or wait)
    report = take_down(this_site(), _silent if machine else say, then, agree)
    if machine:
        print_json(report)


_GO_ON = "go on without the site, and `headway up` takes them up"


def _silent(_: str) -> None:
    pass


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(1_000, 327_000),
    default=200_000,
    show_default=True,
    help="Flights to train on.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    default=40,
    show_default=True,
    help="Boosting rounds.",
)
@as_json
def demo(rows: int, rounds: int, machine: bool) -> None:
    """Bring up a site, train the flights sample on it, and show what happened."""
    from headway.admin.demo import run_demo

    sys.exit(run_demo(this_site(), rows=rows, rounds=rounds, machine=machine))


@click.command()
@as_json
def nodes(machine: bool) -> None:
    """What each node has, what is promised of it, and what is in use."""
    from headway.units import format_size
    from headway.views.node_table import cache_text, gpus_text, state_text

    with open_client() as client:
        views = client.nodes()
    if machine:
        print_json(views)
        return
    rows = []
    for view in views:
        used = view["host_used_bytes"]
        rows.append(
            [
                view["node"],
                state_text(view),
                f"{view['cpus_promised']:g} of {view['cpus']:g}",
                _of(view["host_promised_bytes"], view["host_memory_bytes"]),
                "–" if used is None else format_size(used),
                cache_text(view["cache"]),
                view["gpu_error"] or gpus_text(view["gpus"]) or "none",
            ]
        )
    print_table([*_NODE_COLUMNS, "data cache", "GPUs"], rows)


_NODE_COLUMNS = ("node", "state", "CPUs promised", "memory promised", "memory used")


@click.command()
@click.option("--older-than", metavar="DURATION", help="Ended longer ago than this, such as 90d.")
@click.option("--keep-at-most", metavar="SIZE", help="Oldest first, until so much is left.")
@click.option("--store", "stored", is_flag=True, help="In the site's store, not on this node.")
@click.option("--data", is_flag=True, help="Data sets that members have put, here at the gateway.")
@click.option("--dry-run", is_flag=True, help="Say what would go; remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def prune(
    *,
    older_than: str | None,
    keep_at_most: str | None,
    stored: bool,
    data: bool,
    dry_run: bool,
    yes: bool,
    machine: bool,
) -> None:
    """Remove the folders of finished runs on this node: outputs, logs, profiles.

    Without limits by what is set for this node (keep_days and keep_size in its block). With --store
    what the site's store has of finished runs of all nodes, without limits by the teams' keep_days.
    With --data what members have put and no run was handed in with for so long.
    What runs, waits or will be tried again is never touched.
    """
    from headway.admin.database.own import start_database
    from headway.home import ballast_given_up

    site = this_site()
    if machine and not (yes or dry_run):
        raise click.UsageError("with --json nobody can be asked: add --yes or --dry-run")
    tell = _silent if machine else say
    with ballast_given_up(site.settings.home, tell) as short:
        if short:  # it has stopped the database, which says what may go
            start_database(site.settings, site.clock, tell)
        if data:
            _prune_data(site, older_than, ask=not yes, dry_run=dry_run, machine=machine)
            return
        limits = _limits(site, older_than, keep_at_most, stored=stored)
        _prune_runs(site, limits, stored=stored, ask=not yes, dry_run=dry_run, machine=machine)


def _prune_runs(
    site: "Site",
    limits: tuple[float | None, int | None],
    *,
    stored: bool,
    ask: bool,
    dry_run: bool,
    machine: bool,
) -> None:
    """Remove folders of finished runs on this node, or in the store."""
    from headway.views.fields import fields

    find, remove = _in_the_store(site) if stored else _on_this_node(site)
    found = find(*limits)
    freed = sum(each.run.size_bytes for each in found)
    if not machine:
        _print_removals(found, freed)
    gone = []
    if found and not dry_run and (not ask or click.confirm("Remove them?")):
        with click.progressbar(found, label="removing", file=sys.stderr) as bar:
            gone = [each.run.run_id for each in bar if remove(each.run.run_id)]
    if machine:
        runs = [
            {
                **fields(each.run, "run_id", "name", "ended_at", "size_bytes"),
                "why": each.why,
                "removed": each.run.run_id in gone,
            }
            for each in found
        ]
        print_json({"runs": runs, "size_bytes": freed})
    elif found and not dry_run:
        click.echo(f"{len(gone)} of {len(found)} removed")


def _prune_data(
    site: "Site", older_than: str | None, *, ask: bool, dry_run: bool, machine: bool
) -> None:
    """Remove data sets that members have put and that no run has used for *older_than*."""
    from headway.node.expiry import remove_upload, unused_uploads
    from headway.units import format_size
    from headway.views.fields import fields

    keep_s, _ = _limits(site, older_than or "", None, stored=False)
    found = unused_uploads(site, keep_s or 0.0)
    if not machine:
        rows = [[e.team, e.name, format_size(e.size_bytes), f"{e.used_at:%Y-%m-%d}"] for e in found]
        print_table(["team", "data set", "size", "last used"], rows)
    gone = []
    if found and not dry_run and (not ask or click.confirm("Remove them?")):
        gone = [each for each in found if remove_upload(site, each)]
    if machine:
        shown = ("team", "name", "owner", "size_bytes", "used_at")
        sets = [{**fields(each, *shown), "removed": each in gone} for each in found]
        print_json({"data": sets, "size_bytes": sum(each.size_bytes for each in found)})
    elif found and not dry_run:
        click.echo(f"{len(gone)} of {len(found)} removed")


def _on_this_node(site: "Site") -> "_Place":
    from headway.node.prune import removals, remove

    def find(keep_s: float | None, keep_bytes: int | None) -> "list[Removal]":
        return removals(site, keep_s=keep_s, keep_bytes=keep_bytes, walk=_seen_on_the_way)

    return find, lambda run_id: remove(site, run_id)


def _in_the_store(site: "Site") -> "_Place":
    from headway.errors import InvalidInput
    from headway.node.expiry import stored_removals
    from headway.node.storing import remove_stored, store_of

    store = store_of(site.settings)
    if store is None:
        raise InvalidInput("--store", "no store", "set HEADWAY_STORE_URL; this site has none")

    def find(keep_s: float | None, keep_bytes: int | None) -> "list[Removal]":
        return stored_removals(site, keep_s=keep_s, keep_bytes=keep_bytes)

    def remove(run_id: str) -> bool:
        remove_stored(site, store, run_id)
        return True

    return find, remove


def _limits(
    site: "Site", older_than: str | None, keep_at_most: str | None, *, stored: bool
) -> tuple[float | None, int | None]:
    """Seconds and bytes to keep: as asked, else as set for this node, or for the teams."""
    from headway.errors import InvalidInput
    from headway.policy.retention import seconds
    from headway.units import parse_duration, parse_size

    if older_than is None and keep_at_most is None and stored:
        if all(each.keep_days is None for each in site.policy_settings.teams.values()):
            allowed = "give --older-than 90d or --keep-at-most 5TiB, or set a team's keep_days"
            raise InvalidInput("headway-line/site", "no limits", f"{allowed} in the block")
        return None, None
    if older_than is None and keep_at_most is None:
        settings = site.node_settings
        if settings.keep_days is None and settings.keep_size is None:
            allowed = (
                "give --older-than 90d or --keep-at-most 500GiB, or set keep_days or keep_size"
            )
            name = f"headway-node/{site.settings.node}"
            raise InvalidInput(name, "no limits", f"{allowed} in the block")
        return seconds(settings.keep_days), settings.keep_size
    try:
        keep_s = None if older_than is None else parse_duration(older_than)
    except ValueError:
        raise InvalidInput("--older-than", older_than, "give a duration such as 90d") from None
    try:
        return keep_s, None if keep_at_most is None else parse_size(keep_at_most)
    except ValueError:
        raise InvalidInput("--keep-at-most", keep_at_most, "give a size such as 500GiB") from None


def _seen_on_the_way(records: "list[RunRecord]") -> "Iterator[RunRecord]":
    with click.progressbar(records, label="measuring", file=sys.stderr) as bar:
        yield from bar


def _print_removals(found: "list[Removal]", freed: int) -> None:
    from headway.units import format_size

    if not found:
        click.echo("nothing to remove")
        return
    print_table(
        ["run", "name", "ended", "size", "why"],
        [
            [
                each.run.run_id[:8],
                each.run.name,
                f"{each.run.ended_at.astimezone():%Y-%m-%d %H:%M}",
                format_size(each.run.size_bytes),
                each.why,
            ]
            for each in found
        ],
    )
    click.echo(f"{len(found)} finished runs, {format_size(freed)}")


def _of(part_bytes: int, whole_bytes: int) -> str:
    from headway.units import format_size

    return f"{format_size(part_bytes)} of {format_size(whole_bytes)}"


COMMANDS = (up, serve, down, demo, nodes, prune)
