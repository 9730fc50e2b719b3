"""The command that hands a job to the site."""

import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headway.cli.arrays import array_of, tell_of
from headway.cli.completion import NODE
from headway.cli.inputs import (
    A_FILE,
    open_client,
    overrides,
    read_job_file,
    with_folder,
    with_places,
)
from headway.cli.output import (
    Columns,
    Json,
    as_json,
    print_changes,
    print_json,
    print_rows,
    print_table,
    progress_bar,
    say,
    start_of,
)
from headway.clock import SystemClock
from headway.code.folder import INCLUDE, left_behind
from headway.units import COST, format_cost, format_duration, format_size

if TYPE_CHECKING:
    from headway.client import Client
    from headway.model.array import Array

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


NEWEST = "3"
"""The Python of a program of which nothing is said."""
Place = dict[str, str | None]
"""Work pool and queue, as the client takes them."""
Environment = dict[str, str]
"""The fields of a job that say in what its program starts."""
_Command = Callable[..., None]


def place_options(command: _Command) -> _Command:
    """Give *command*, which submits a job, the options that say where it goes, as ``place``."""

    @click.option("--pool", help="Work pool, where the site has several.")
    @click.option("--queue", help="Work queue of the pool; its priority decides who goes first.")
    @click.option("--node", type=NODE, help="Run on this node and nowhere else.")
    @wraps(command)
    def placed(*, pool: str | None, queue: str | None, node: str | None, **options: Any) -> None:
        command(place={"pool": pool, "queue": node or queue}, **options)

    return placed


def environment_options(command: _Command) -> _Command:
    """Give *command* the options that say in what its program starts, as ``environment``."""

    @click.option("--image", help="Container image; or $HEADWAY_IMAGE.")
    @click.option("--python", help="In its place: 3.11, for which the site has named an image.")
    @click.option(
        "--requirements", default="", help="File of the folder; the program gets what it lists."
    )
    @wraps(command)
    def with_environment(
        *, image: str | None, python: str | None, requirements: str, **options: Any
    ) -> None:
        image = image or ("" if python else os.environ.get("HEADWAY_IMAGE", ""))
        python = python or ("" if image else NEWEST)
        fields = {"image": image, "python": python, "requirements": requirements}
        command(environment=fields, **options)

    return with_environment


@click.command()
@click.argument("job_file", type=A_FILE)
@click.argument("more", nargs=-1, metavar="")
@click.option(
    "--array",
    "parameters",
    multiple=True,
    metavar="NAME=VALUES …",
    help="Run it once for every combination: --array lr=0.1,0.01 seed=1..5",
)
@click.option("--at-most", type=click.IntRange(1), help="Members of the array that run at once.")
@click.option("--after", metavar="RUN", help="Start when that run has ended well.")
@overrides
@click.option("--watch", is_flag=True, help="Follow the run to its end.")
@click.option("--key", help="Submitting twice with one key gives one run.")
@place_options
@click.option("--dry-run", is_flag=True, help="Say what would happen; submit nothing.")
@as_json
def submit(
    *,
    job_file: BinaryIO,
    more: tuple[str, ...],
    parameters: tuple[str, ...],
    at_most: int | None,
    after: str | None,
    overrides: tuple[str, ...],
    watch: bool,
    key: str | None,
    place: Place,
    dry_run: bool,
    machine: bool,
) -> None:
    """Submit a job file to the site.

    Examples:
      headway submit job.yaml --watch
      headway submit job.yaml --set resources.gpus=2 --dry-run
    """
    from headway.model.array import member_job

    if more and not parameters:
        raise click.UsageError(f"Got unexpected extra argument ({more[0]})")
    if after is not None:
        overrides = (f"after={json.dumps({'run': after})}", *overrides)
    read = read_job_file(job_file, overrides)
    array = array_of(read, (*parameters, *more), at_most)
    job = with_folder(read.job.document(), job_file)
    with open_client() as client:
        with with_places(read):
            if dry_run:
                if array is not None:
                    job = member_job(job, array.parameters(1))
                view = client.rehearse(job, **place)
                if machine:
                    print_json(view)
                else:
                    _say_what_would_happen(view, 1 if array is None else array.size)
                return
            job = with_code(client, job)
            made = submit_job(client, job, array, key=key, **place)
        tell(client, made, watch=watch, machine=machine)


def submit_job(client: "Client", job: Json, array: "Array | None", **how: str | None) -> Json:
    """Submit *job*, or each member of *array*; *how* is as for `Client.submit`."""
    if array is None:
        return client.submit(job, **how)
    return client.submit_array(job | {"array": array.document()}, **how)


def tell(client: "Client", made: Json, *, watch: bool, machine: bool) -> None:
    """Say what was submitted, a run or an array; with *watch* follow it, and exit as it did."""
    if machine and not watch:
        print_json(made)
        return
    if not machine:
        if "run_id" not in made:
            tell_of(made)
        else:
            say(f"{made['name']}: {made['run_id']}")
            say(f"watch it at {made['url']}")
            if made.get("session"):
                say(f"its page, once what it needs is there and it listens: {made['session']}")
    if watch:
        sys.exit(_watch(client, made, machine=machine))


_SAID_LEFT = 4


def with_code(client: "Client", job: Json) -> Json:
    """*job* once its folder was sent, with a bar of how far that is on a terminal.

    Said beforehand is what of it stays behind, which a program may look for in vain.
    """
    from rich.progress import DownloadColumn

    if (workdir := job.get("workdir")) and (left := left_behind(Path(str(workdir)))):
        more = f" and {len(left) - _SAID_LEFT} more" if len(left) > _SAID_LEFT else ""
        names = f"{', '.join(left[:_SAID_LEFT])}{more}"
        say(
            f"left out, as .gitignore says: {names}; a file {INCLUDE} with patterns names what of "
            "it the program needs",
            err=True,
        )

    with progress_bar(DownloadColumn()) as bar:
        task = bar.add_task("sending code", total=None, visible=False)

        def sent(done_bytes: int, of_bytes: int) -> None:
            bar.update(task, completed=done_bytes, total=of_bytes, visible=True)

        return client.with_code(job, sent=sent)


def _watch(client: "Client", made: Json, *, machine: bool) -> int:
    from headway.views.watch import watch_array, watch_run

    is_run = "run_id" in made
    try:
        if is_run:
            return watch_run(client, made["run_id"], SystemClock(), machine=machine)
        return watch_array(client, made["array_id"], SystemClock(), machine=machine)
    except KeyboardInterrupt:
        short = made["run_id" if is_run else "array_id"][:8]
        click.echo(
            f"the {'run' if is_run else 'array'} goes on; `headway show {short}` tells how it "
            f"stands, `headway cancel {short}` ends it"
            + (f", `headway logs -f {short}` follows it again" if is_run else ""),
            err=True,
        )
        return INTERRUPTED


def _say_what_would_happen(view: Json, members: int) -> None:
    if members > 1:
        say(f"the first of its {members} members; the others follow as places come free:")

    said = view["predicted"]
    basis = view["host_memory_why"] or _BASES[view["host_memory_basis"]]
    print_table(
        ["", ""],
        [
            ["image", view["image"] or "–"],
            ["starts", view["reason"]],
            ["position", str(view["position"] or "–")],
            ["expected", start_of(view)],
            ["runtime", _runtime(said) if view["runtime_known"] else _UNKNOWN],
            ["host memory", f"{format_size(view['needs_host_memory_bytes'])}, {basis}"],
            ["each GPU", _each_gpu(view)],
            [COST, format_cost(said["cost"] if view["runtime_known"] else None)],
            ["rests on", said["basis"]],
        ],
    )
    if sizes := view["sizes"]:
        click.echo(f"\nits size is left open, {sizes[0]['size']} to {sizes[-1]['size']}:")
        print_rows(_SIZES, sizes)
    if view["changes"]:
        print_changes(view["changes"], "with one of these it would start earlier:")


def _runtime(said: Json) -> str:
    middle, low, high = (
        format_duration(said[key] or 0) for key in ("runtime_s", "runtime_low_s", "runtime_high_s")
    )
    return f"{middle} ({low} to {high})"


_UNKNOWN = "not known: nothing like it has run here"
_BASES = {
    "declared": "as declared",
    "predicted": "as runs like it have shown",
    "prior": "a guess: nothing like it has ended well",
    "retry": "more than was not enough",
}
"""Where a number of a demand comes from, for people."""


def _each_gpu(view: Json) -> str:
    if not view["needs_gpus"]:
        return "–"
    size = format_size(view["needs_gpu_memory_bytes"]) if view["needs_gpu_memory_bytes"] else ""
    whole = "whole" + (f", at least {size}" if size else "") if view["needs_whole_gpus"] else size
    return f"{whole}, {_BASES[view['gpu_memory_basis']]}"


_SIZES: Columns = {
    "size": "size",
    "runtime": lambda each: "not known" if each["runtime_s"] is None else _runtime(each),
    COST: lambda each: format_cost(each["cost"]),
}
