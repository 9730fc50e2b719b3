"""The command that shows the site live in a terminal."""

from contextlib import suppress

import click

from headway.cli.inputs import open_client
from headway.cli.output import as_json, print_json
from headway.clock import SystemClock


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option("--interval", default=1.0, show_default=True, type=click.FloatRange(0.2, 3600.0))
@as_json
def top(once: bool, interval: float, machine: bool) -> None:
    """Watch nodes, GPUs, runs and the queue; Ctrl-C ends it.

    Examples:
      headway top
      headway top --once
    """
    from rich.console import Console
    from rich.live import Live

    from headway.views.top import picture

    console = Console()
    with open_client() as client:
        if machine:
            print_json(client.top())
            return
        if once or not console.is_terminal:
            console.print(picture(client.top()))
            return
        with (
            suppress(KeyboardInterrupt),
            Live(picture(client.top()), console=console, screen=True, auto_refresh=False) as live,
        ):
            while True:
                SystemClock().sleep(interval)
                live.update(picture(client.top()), refresh=True)
