"""The command that lists and fetches what a run wrote."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headway.cli.arrays import if_array
from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import Columns, Json, as_json, print_json, print_rows, progress_bar, say
from headway.clock import SystemClock
from headway.errors import GatewayRefused
from headway.units import format_size

if TYPE_CHECKING:
    from headway.client import Client

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of a run, as it may be a folder's here."""


@click.command()
@click.argument("words", metavar="RUN… [DIR]", nargs=-1, required=True, type=RUN)
@click.option("--list", "listing", is_flag=True, help="Only say what there is.")
@click.option(
    "--attempt", type=click.IntRange(1), help="On the node of this attempt; else of the last."
)
@click.option("--only", multiple=True, metavar="PATTERN", help="Such as '*.pt'; several may do.")
@as_json
def outputs(
    *,
    words: tuple[str, ...],
    listing: bool,
    attempt: int | None,
    only: tuple[str, ...],
    machine: bool,
) -> None:
    """List what a run wrote to its outputs, or download it.

    DIR is new, empty, or holds an earlier download of this run: complete files are not sent again,
    and an interrupted file continues. Each file is checked by its SHA-256. With several runs, or
    an array, each gets a folder of its own in DIR.

    Examples:
      headway outputs flights --list
      headway outputs flights ./results --only '*.pt'
    """
    from headway.client.download import chosen

    runs, folder = words[:-1] or words, Path(words[-1]) if len(words) > 1 else None
    with open_client() as client:
        array = if_array(client.array, runs[0]) if len(runs) == 1 else None
        if array is not None or len(runs) > 1:
            if attempt or machine:
                raise click.UsageError("--attempt and --json are for one run")
            if listing or folder is None:
                sys.exit(_list_all(client, runs, only))
            sys.exit(_fetch_all(client, runs, folder, only))
        seen = client.run(runs[0])
        run_id = seen["run_id"]
        found = client.outputs(run_id, attempt)
        found["elsewhere"] = _elsewhere(seen.get("attempts") or [], attempt)
        files = chosen(found["files"], only)
        if listing or folder is None:
            document = {**found, "run_id": run_id, "files": files}
            (print_json if machine else _print_list)(document)
            return
        fetched = _fetch(client, (run_id, attempt), folder, files, quiet=machine)
    failed = [each for each in fetched if each["error"]]
    if machine:
        print_json({**found, "run_id": run_id, "folder": str(folder), "files": fetched})
    else:
        say(_summary(fetched, folder))
        _say_what_is_missing(found)
    sys.exit(1 if failed else 0)


def _fetch_all(client: "Client", asked: Sequence[str], folder: Path, only: Sequence[str]) -> int:
    """Fetch the outputs of several runs, each into a folder of its own; the exit status."""
    folders, fetched = folders_of(client, asked), []
    for run_id, name in folders.items():
        files = _files_of(client, run_id, only)
        fetched += _fetch(client, (run_id, None), folder / name, files, quiet=False)
    say(f"of {len(folders)} runs: {_summary(fetched, folder)}")
    return 1 if any(each["error"] for each in fetched) else 0


def _list_all(client: "Client", asked: Sequence[str], only: Sequence[str]) -> int:
    """Say what several runs have written; the exit status."""
    rows = [
        {"run": name, **file}
        for run_id, name in folders_of(client, asked).items()
        for file in _files_of(client, run_id, only)
    ]
    print_rows({"run": "run", **_COLUMNS}, rows) if rows else say(_NONE)
    return 0


def _files_of(client: "Client", run_id: str, only: Sequence[str]) -> list[Json]:
    """The outputs of one of several runs."""
    from headway.client.download import chosen

    try:
        return chosen(client.outputs(run_id)["files"], only)
    except GatewayRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return []  # it has not started yet, or has never written any


_NONE = "its outputs have no file, or none that fits --only"


def folders_of(client: "Client", asked: Sequence[str]) -> dict[str, str]:
    """The runs that are *asked* for, of arrays the members that have begun, each with its folder.

    That is called as the run is, unless another one is called so, or no folder may be.
    """
    found: dict[str, str] = {}
    for name in asked:
        array = if_array(client.array, name)
        for run in [client.run(name)] if array is None else array["members"]:
            free = run["name"] not in found.values() and _NAME.fullmatch(run["name"]) is not None
            found[run["run_id"]] = run["name"] if free else run["run_id"]
    return found


def _elsewhere(attempts: list[Json], asked: int | None) -> list[Json]:
    """The last attempt on each other node than that of *asked*, or of the last that began."""
    started = {each["attempt"]: each["node"] for each in attempts if each["started_at"]}
    here = started.get(asked or max(started, default=0))
    last = {node: number for number, node in sorted(started.items()) if node != here}
    return [{"attempt": number, "node": node} for node, number in last.items()]


def _fetch(
    client: "Client",
    whose: tuple[str, int | None],
    folder: Path,
    files: list[Json],
    *,
    quiet: bool,
) -> list[Json]:
    """The files, each with what became of it."""
    from rich.progress import DownloadColumn

    from headway.client.download import Download, DownloadFailed, take_folder

    run_id, attempt = whose
    take_folder(folder, run_id if attempt is None else f"{run_id} attempt {attempt}")
    fetched = []
    with progress_bar(DownloadColumn(), hidden=quiet) as bar:
        task = bar.add_task("fetching", total=sum(each["bytes"] for each in files))
        clock = SystemClock()

        def tell(more_bytes: int) -> None:
            bar.update(task, advance=more_bytes)

        download = Download(client, clock, run_id, attempt, folder, tell)
        download.check_room(files)
        for each in files:
            here, error = True, ""
            try:
                here = not download.fetch(each)
            except DownloadFailed as failure:
                error = str(failure)
                say(error, err=True)
            fetched.append({**each, "was_here": here and not error, "error": error})
    return fetched


def _summary(fetched: list[Json], folder: Path) -> str:
    new = [each for each in fetched if not each["was_here"] and not each["error"]]
    failed = sum(bool(each["error"]) for each in fetched)
    size = format_size(sum(each["bytes"] for each in new))
    parts = [f"{len(new)} file{'' if len(new) == 1 else 's'} fetched into {folder} ({size})"]
    if before := len(fetched) - len(new) - failed:
        parts.append(f"{before} were there")
    if failed:
        parts.append(f"{failed} failed: the same command tries them again")
    return ", ".join(parts)


def _print_list(document: Json) -> None:
    if document["files"]:
        print_rows(_COLUMNS, document["files"])
    else:
        say(_NONE)
    _say_what_is_missing(document)


def _say_what_is_missing(found: Json) -> None:
    if not found["complete"]:
        say("there are more files or deeper folders than are listed: pack them", err=True)
    if found["left_out"]:
        what = "links, sockets and the like are left out"
        say(f"{found['left_out']} {what}", err=True)
    for each in found["not_stored"]:
        size = format_size(each["bytes"])
        say(f"{each['path']} ({size}) was not brought to the store: it is mostly holes", err=True)
    for each in found["elsewhere"]:
        what = f"attempt {each['attempt']} was on node {each['node']}"
        say(f"{what}: --attempt {each['attempt']} for its outputs", err=True)


def _local(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, UTC).astimezone():%Y-%m-%d %H:%M}"


_COLUMNS: Columns = {
    "path": "path",
    "size": lambda file: format_size(file["bytes"]),
    "changed": lambda file: _local(file["modified"]),
}
