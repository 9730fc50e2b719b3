"""Commands about the site: up, down, demo, nodes, doctor."""

import sys

import click

from headway.cli_runs import as_json, open_server, print_json, print_table, this_site


@click.command()
@as_json
def up(machine: bool) -> None:
    """Bring up the site on this machine: server, worker, blocks, deployments."""
    from headway.demo import bring_up

    site = this_site()
    report = bring_up(site, say=(lambda _: None) if machine else click.echo)
    if machine:
        print_json(report)
    else:
        click.echo(f"the site is up: {report['url']}")
        click.echo(f"its page asks for a password once: the line in {report['auth_file']}")
        click.echo(f"for Prefect's own commands type `{report['prefect']} …`")
        click.echo(
            "submit a job with `headway submit job.yaml`, stop all of it with `headway down`"
        )


@click.command()
def serve() -> None:
    """Be the site's Prefect server in the foreground, for systemd and containers."""
    from headway.up import serve_site

    serve_site(this_site().settings)


@click.command()
@as_json
def down(machine: bool) -> None:
    """Stop the site on this machine; runs that are under way are cancelled."""
    from headway.demo import take_down

    report = take_down(this_site(), say=(lambda _: None) if machine else click.echo)
    if machine:
        print_json(report)


@click.command()
@click.option("--rows", default=200_000, show_default=True, help="Flights to train on.")
@click.option("--rounds", default=40, show_default=True, help="Boosting rounds.")
@as_json
def demo(rows: int, rounds: int, machine: bool) -> None:
    """Bring up a site, train the flights sample on it, and show what happened."""
    from headway.demo import run_demo

    sys.exit(run_demo(this_site(), rows=rows, rounds=rounds, machine=machine))


@click.command()
@as_json
def nodes(machine: bool) -> None:
    """What each node has, what is promised of it, and what is in use."""
    from headway.units import format_size
    from headway.view import gpu_text, node_view

    site = this_site()
    leases = site.ledger.leases.live()
    views = [node_view(record, leases) for record in site.ledger.nodes.all()]
    if machine:
        print_json(views)
        return
    rows = []
    for view in views:
        used = view["host_used_bytes"]
        rows.append(
            [
                view["node"],
                view["state"] + (f" ({view['state_reason']})" if view["state_reason"] else ""),
                f"{view['cpus_promised']:g} of {view['cpus']:g}",
                _of(view["host_promised_bytes"], view["host_memory_bytes"]),
                "–" if used is None else format_size(used),
                view["gpu_error"] or ", ".join(gpu_text(gpu) for gpu in view["gpus"]) or "none",
            ]
        )
    print_table(["node", "state", "CPUs promised", "memory promised", "memory used", "GPUs"], rows)


@click.command()
@as_json
def doctor(machine: bool) -> None:
    """Check everything a site needs on this machine; exit status 1 when something is wrong."""
    from headway.doctor import examine

    site = this_site()
    with open_server(site) as server:
        findings = examine(site, server)
    if machine:
        print_json([finding._asdict() for finding in findings])
    else:
        print_table(
            ["", "what", "found"],
            [["ok" if f.ok else "!!", f.what, f.found] for f in findings],
        )
    sys.exit(0 if all(finding.ok for finding in findings) else 1)


def _of(part_bytes: int, whole_bytes: int) -> str:
    from headway.units import format_size

    return f"{format_size(part_bytes)} of {format_size(whole_bytes)}"


COMMANDS = (up, serve, down, demo, nodes, doctor)
