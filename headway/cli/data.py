"""Commands about the data that members bring: put, ls, rm."""

from pathlib import Path
from typing import Any

import click

from headway.cli.inputs import open_client
from headway.cli.output import as_json, print_json, print_table, say


@click.group()
def data() -> None:
    """Data sets that you bring from your machine, for jobs of your team."""


@data.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", help="Of the data set; that of PATH when left out.")
@as_json
def put(*, path: Path, name: str | None, machine: bool) -> None:
    """Send a file or a directory to the site; what broke off goes on where it was.

    Jobs of your team read it as `dataset: {uri: headway://NAME}`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from headway.units import format_size

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    hidden = machine or not console.is_terminal
    with (
        open_client() as client,
        Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden
        ) as bar,
    ):
        task = bar.add_task("reading", total=None)

        def told(what: str, done_bytes: int, of_bytes: int) -> None:
            bar.update(task, description=what, completed=done_bytes, total=of_bytes)

        kept = client.put_data(path, name, told=told)
    if machine:
        print_json(kept)
        return
    files = "1 file" if kept["files"] == 1 else f"{kept['files']} files"
    say(f"{kept['name']}: {files}, {format_size(kept['size_bytes'])}; in a job:")
    say(f"dataset: {{uri: {kept['uri']}}}")


@data.command("ls")
@as_json
def list_(*, machine: bool) -> None:
    """What members of your team have put, and when a run was last handed in with it."""
    from headway.units import format_size

    with open_client() as client:
        found = client.data()
    if machine:
        print_json(found)
        return
    if not found:
        say("nobody of your team has put any: `headway data put PATH`")
        return
    columns = ["address", "size", "files", "by", "put", "last used"]
    rows = [
        [
            each["uri"],
            format_size(each["size_bytes"]),
            str(each["files"]),
            each["owner"],
            _day(each, "put_at"),
            _day(each, "used_at"),
        ]
        for each in found
    ]
    print_table(columns, rows)


@data.command()
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@as_json
def rm(*, names: tuple[str, ...], machine: bool) -> None:
    """Remove data sets of yours that no run needs which waits or runs."""
    with open_client() as client:
        gone = [client.remove_data(name.removeprefix("headway://")) for name in names]
    if machine:
        print_json(gone)
        return
    for each in gone:
        say(f"{each['name']} was removed")


def _day(view: dict[str, Any], field: str) -> str:
    return str(view[field])[:16].replace("T", " ")


COMMANDS = (data,)
