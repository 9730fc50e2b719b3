"""Commands about the data that members bring: put, ls, rm."""

from pathlib import Path

import click

from headway.cli.inputs import open_client
from headway.cli.output import (
    Columns,
    Json,
    as_json,
    print_json,
    print_rows,
    progress_bar,
    say,
    told_by,
)
from headway.units import format_size


@click.group()
def data() -> None:
    """Manage the data sets that your team uploads for its jobs."""


@data.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", help="Of the data set; that of PATH when left out.")
@as_json
def put(*, path: Path, name: str | None, machine: bool) -> None:
    """Upload a file or a directory to the site.

    A transfer that was interrupted continues. Jobs of your team read the data set as `dataset:
    {uri: headway://NAME}`, or by `headway run --data headway://NAME`.

    Examples:
      headway data put ./images
      headway data put train.parquet --name flights
    """
    from rich.progress import DownloadColumn, TimeRemainingColumn

    columns = DownloadColumn(), TimeRemainingColumn()
    with open_client() as client, progress_bar(*columns, hidden=machine) as bar:
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
    say(f"or on the command line: headway run --data {kept['uri']} PROGRAM")


def _tell(found: list[Json]) -> None:
    if found:
        print_rows(_COLUMNS, found)
    else:
        say("your team has no data here yet; `headway data put PATH` brings some")


@data.command("ls")
@told_by(_tell)
def list_() -> list[Json]:
    """List the team's data sets, and when a run last used each.

    Examples:
      headway data ls
      headway data ls --json
    """
    with open_client() as client:
        return client.data()


def _tell_removed(gone: list[Json]) -> None:
    for each in gone:
        say(f"{each['name']} was removed")


@data.command()
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@told_by(_tell_removed)
def rm(names: tuple[str, ...]) -> list[Json]:
    """Remove data sets of yours that no waiting or running run needs.

    Examples:
      headway data rm flights
      headway data rm flights images
    """
    with open_client() as client:
        return [client.remove_data(name.removeprefix("headway://")) for name in names]


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


_COLUMNS: Columns = {
    "address": "uri",
    "size": lambda each: format_size(each["size_bytes"]),
    "files": "files",
    "by": "owner",
    "put": lambda each: _minute(each["put_at"]),
    "last used": lambda each: (
        "never" if each["used_at"] == each["put_at"] else _minute(each["used_at"])
    ),
}
