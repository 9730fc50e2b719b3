"""The command that shows the site live in a terminal."""

from typing import TYPE_CHECKING, Any

import click

from headway.cli.inputs import this_site
from headway.cli.output import as_json, print_json

if TYPE_CHECKING:
    from headway.site import Site


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option("--interval", default=1.0, show_default=True, type=click.FloatRange(0.2, 3600.0))
@as_json
def top(once: bool, interval: float, machine: bool) -> None:
    """Nodes, GPUs, runs and the line, live; leave with Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from headway.views.top import picture

    site = this_site()
    if machine:
        print_json(_seen(site))
        return
    console = Console()
    if once or not console.is_terminal:
        console.print(picture(_seen(site)))
        return
    try:
        with Live(picture(_seen(site)), console=console, screen=True, auto_refresh=False) as live:
            while True:
                site.clock.sleep(interval)
                live.update(picture(_seen(site)), refresh=True)
    except KeyboardInterrupt:
        return


def _seen(site: "Site") -> dict[str, Any]:
    from headway.gateway.api import snapshot
    from headway.views.node_document import node_view
    from headway.views.queue_document import line_views
    from headway.views.run_document import warning_view
    from headway.views.top import document

    now = snapshot(site)
    runs = [
        {
            "run_id": standing.record.run_id,
            "name": standing.record.name,
            "node": standing.record.node,
            "elapsed_s": standing.elapsed_s,
            "done_frac": standing.done_frac,
            "remaining_s": standing.remaining_s,
            "warnings": [
                warning_view(each)
                for each in now.warnings
                if each.failure.run_id == standing.record.run_id
            ],
        }
        for standing in now.running
    ]
    return document(
        [node_view(record, now.leases) for record in now.nodes],
        runs,
        line_views(site),
    )


COMMANDS = (top,)
