"""How commands print: lines and tables for people, JSON for machines."""

import json
import sys
from typing import Any

import click

from headway.views.terminal import plain

as_json = click.option("--json", "machine", is_flag=True, help="Print JSON with stable keys.")


def say(text: str, *, err: bool = False) -> None:
    """One line for people, whatever names are in it."""
    click.echo(plain(text), err=err)


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2))


def start_of(view: dict[str, Any]) -> str:
    """When a run that waits is expected to start, by this terminal's clock."""
    from headway.clock import SystemClock
    from headway.views.queue_table import start_text

    return start_text(view, SystemClock().now().astimezone())


def promise_of(view: dict[str, Any]) -> str:
    """What follows `start_of` in its sentence: from when on it goes first, by the same clock."""
    from datetime import datetime

    from headway.clock import SystemClock
    from headway.policy.outlook import promise_text

    promised = view["promised_start_at"]
    return promise_text(
        promised and datetime.fromisoformat(promised), SystemClock().now().astimezone()
    )


def moment_of(said: str | None) -> str:
    """A moment of the JSON output, by the same clock."""
    from datetime import datetime

    if said is None:
        return "not known"
    return f"{datetime.fromisoformat(said).astimezone():%d %b %H:%M}"


def print_changes(changes: list[dict[str, Any]], heading: str) -> None:
    """What would start a run earlier, after an empty line."""
    say("")
    say(heading)
    print_table(
        ["change", "expected start", "expected end"],
        [[one["text"], start_of(one), moment_of(one["expected_end_at"])] for one in changes],
    )


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text, not markup: a name such as "[red]" is shown as it is.
        table.add_row(*(Text(plain(cell)) for cell in row))
    # Whoever reads from a pipe wants whole lines, not those of a terminal of 80 columns, and none
    # that is padded to what the longest has in its last column.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    with console.capture() as printed:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


_PIPE_COLUMNS = 1000
