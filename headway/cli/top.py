"""The command that shows the site live in a terminal."""

import click

from headway.cli.inputs import this_site
from headway.cli.output import as_json, print_json


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option("--interval", default=1.0, show_default=True, type=click.FloatRange(0.2, 3600.0))
@as_json
def top(once: bool, interval: float, machine: bool) -> None:
    """Nodes, GPUs, runs and the queue, live; leave with Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from headway.views.top import document, picture

    site = this_site()
    if machine:
        print_json(document(site))
        return
    console = Console()
    if once or not console.is_terminal:
        console.print(picture(document(site)))
        return
    try:
        with Live(
            picture(document(site)), console=console, screen=True, auto_refresh=False
        ) as live:
            while True:
                site.clock.sleep(interval)
                live.update(picture(document(site)), refresh=True)
    except KeyboardInterrupt:
        return


COMMANDS = (top,)
