"""How commands print: lines and tables for people, JSON for machines."""

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from headway.clock import SystemClock
from headway.views.terminal import plain

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Json = dict[str, Any]
Columns = dict[str, str | Callable[[Any], object]]
"""By heading a row's field, or what makes the cell of a row; None is an empty one."""
_PIPE_COLUMNS = 1000

as_json = click.option("--json", "machine", is_flag=True, help="Print JSON with stable keys.")


def told_by(tell: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command the option --json: its document is printed as such, else *tell* tells it."""

    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        @as_json
        @functools.wraps(command)
        def told(*arguments: Any, machine: bool, **options: Any) -> None:
            (print_json if machine else tell)(command(*arguments, **options))

        return told

    return decorate


def say(text: str, *, err: bool = False) -> None:
    """One line for people, whatever names are in it."""
    click.echo(plain(text), err=err)


def silent(_: str) -> None:
    """In the place of `say`, where a document is printed."""


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2))


def start_of(view: Json) -> str:
    """When a run that waits is expected to start, by this terminal's clock.

    And from when on it goes first, where that was promised.
    """
    from headway.policy.outlook import promise_text
    from headway.views.tables import start_text

    now, promised = SystemClock().now().astimezone(), view.get("promised_start_at")
    return start_text(view, now) + promise_text(promised and datetime.fromisoformat(promised), now)


def planned_of(views: Sequence[Json]) -> str:
    """When the plan was made that tells the starts of *views*; empty where none does."""
    # A gateway of an earlier version has no such field.
    moments = sorted(each["planned_at"] for each in views if each.get("planned_at"))
    if not moments:
        return ""
    first = datetime.fromisoformat(moments[0]).astimezone()
    return f"as planned at {first:%H:%M:%S}" + (" or later" if moments[-1] > moments[0] else "")


def moment_of(said: str | None) -> str:
    """A moment of the JSON output, by the same clock."""
    if said is None:
        return "not known"
    return f"{datetime.fromisoformat(said).astimezone():%d %b %H:%M}"


def print_changes(changes: list[Json], heading: str) -> None:
    """What would start a run earlier, after an empty line."""
    say("")
    say(heading)
    columns: Columns = {
        "change": "text",
        "expected start": start_of,
        "expected end": lambda one: moment_of(one["expected_end_at"]),
    }
    print_rows(columns, changes)


def print_rows(columns: Columns, rows: Iterable[Any], most: int | None = None) -> None:
    """A table of *rows* for people, of the first *most* of them."""
    rows = list(rows)
    shown = rows[:most]
    print_table([*columns], [[_cell(row, of) for of in columns.values()] for row in shown])
    if len(rows) > len(shown):
        click.echo(f"… and {len(rows) - len(shown)} more; --json has all of them")


def _cell(row: Any, of: str | Callable[[Any], object]) -> str:
    value = row[of] if isinstance(of, str) else of(row)
    return "" if value is None else str(value)


_LAST_COLUMNS, _LAST_IN_PIPE = 24, 80
"""Room for the last column where others could make room for it, and where it is cut in a pipe."""


def print_table(
    columns: list[str], rows: list[list[str]], spare: Sequence[str] = (), *, cut: bool = False
) -> None:
    """A table for people; where a terminal is too narrow for it, without *spare* columns.

    The last column is folded there; with *cut* it is cut, in a pipe too.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Whoever reads from a pipe wants whole lines, not those of a terminal of 80 columns, and none
    # that is padded to what the longest has in its last column.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    # Text, not markup: a name such as "[red]" is shown as it is.
    cells = [[Text(each) for each in columns]] + [[Text(plain(cell)) for cell in r] for r in rows]
    widths = [max(cell.cell_len for cell in column) + 1 for column in zip(*cells, strict=True)]
    shown = list(range(len(columns)))
    for name in spare:
        if sum(widths[at] for at in shown[:-1]) + min(widths[-1], _LAST_COLUMNS) > console.width:
            shown.remove(columns.index(name))
    if cut:
        room = max(console.width - sum(widths[at] for at in shown[:-1]), _LAST_COLUMNS)
        for row in cells[1:]:
            row[-1].truncate(room if sys.stdout.isatty() else _LAST_IN_PIPE, overflow="ellipsis")
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for at in shown:
        table.add_column(columns[at], overflow="fold")
    for row in cells[1:]:
        table.add_row(*(row[at] for at in shown))
    with console.capture() as printed:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


@contextmanager
def progress_bar(*columns: "ProgressColumn", hidden: bool = False) -> Iterator["Progress"]:
    """A bar on standard error that is gone at the end; none where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console, title = Console(stderr=True), TextColumn("{task.description}")
    hidden = hidden or not console.is_terminal
    shown = (title, BarColumn(), *columns)
    with Progress(*shown, console=console, transient=True, disable=hidden) as bar:
        yield bar
