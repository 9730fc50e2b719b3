"""`headway demo`."""

import sys

import click

from headway.cli.inputs import this_site
from headway.cli.output import as_json


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
    """Start a site here, train a sample on it, and show the result.

    Examples:
      headway demo
      headway demo --rows 50000 --rounds 20
    """
    from headway.admin.demo import run_demo

    sys.exit(run_demo(this_site(), rows=rows, rounds=rounds, machine=machine))
