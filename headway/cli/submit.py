"""The command that hands a job to the site."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headway.cli.arrays import array_of, first_member, tell_of
from headway.cli.completion import NODE
from headway.cli.inputs import (
    A_FILE,
    name_of,
    open_client,
    read_job_file,
    with_places,
)
from headway.cli.output import (
    as_json,
    print_changes,
    print_json,
    print_table,
    promise_of,
    say,
    start_of,
)

if TYPE_CHECKING:
    from headway.client import Client
    from headway.model.array import Array


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


_PLACE = (
    click.option("--pool", help="Work pool, where the site has several."),
    click.option("--queue", help="Work queue of the pool; its priority decides who goes first."),
    click.option("--node", type=NODE, help="Run on this node and nowhere else."),
)
_Command = Callable[..., None]


def place_options(command: _Command) -> _Command:
    """Give *command*, which hands in a job, the options by which it is said where that goes."""
    for option in reversed(_PLACE):
        command = option(command)
    return command


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
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one field.")
@click.option("--watch", is_flag=True, help="Follow the run to its end.")
@click.option("--key", help="Submitting twice with one key gives one run.")
@place_options
@click.option("--dry-run", is_flag=True, help="Say what would happen; hand in nothing.")
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
    pool: str | None,
    queue: str | None,
    node: str | None,
    dry_run: bool,
    machine: bool,
) -> None:
    """Hand a job to the site: `headway submit job.yaml --set resources.cpus=2`."""
    if more and not parameters:
        raise click.UsageError(f"Got unexpected extra argument ({more[0]})")
    if after is not None:
        overrides = (f"after={json.dumps({'run': after})}", *overrides)
    read = read_job_file(job_file, overrides)
    array = array_of(read, (*parameters, *more), at_most)
    job, queue = read.job.document(), node or queue
    with open_client() as client:
        with with_places(read):
            if dry_run:
                if array is not None:
                    job = first_member(job, array)
                view = client.rehearse(job, pool=pool, queue=queue)
                if machine:
                    print_json(view)
                else:
                    _say_what_would_happen(view, 1 if array is None else array.size)
                return
            job = with_code(client, with_folder(job, job_file))
            if array is not None:
                made = client.submit_array(with_array(job, array), key=key, pool=pool, queue=queue)
            else:
                made = client.submit(job, key=key, pool=pool, queue=queue)
        tell(client, made, watch=watch, machine=machine)


def tell(client: "Client", made: dict[str, Any], *, watch: bool, machine: bool) -> None:
    """Say what was handed in, a run or an array; with *watch* follow it, and exit as it did."""
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
                say(f"once it runs, its page is {made['session']}")
    if watch:
        sys.exit(_watch(client, made, machine=machine))


def with_array(job: dict[str, Any], array: "Array") -> dict[str, Any]:
    """*job* as it is handed in once for each member of *array*."""
    return job | {"array": array.document()}


def with_folder(job: dict[str, Any], job_file: BinaryIO) -> dict[str, Any]:
    """*job* whose working directory, if it has one, is found from here: it lies by its file."""
    from pathlib import Path

    name = name_of(job_file)
    if not job["workdir"] or name == "-":
        return job
    return job | {"workdir": str(Path(name).parent / job["workdir"])}


_SAID_LEFT = 4


def with_code(client: "Client", job: dict[str, Any]) -> dict[str, Any]:
    """*job* once its folder was sent, with a bar of how far that is on a terminal.

    Said beforehand is what of it stays behind, which a program may look for in vain.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from headway.code.folder import INCLUDE, left_behind

    if (workdir := job.get("workdir")) and (left := left_behind(Path(str(workdir)))):
        more = f" and {len(left) - _SAID_LEFT} more" if len(left) > _SAID_LEFT else ""
        names = f"{', '.join(left[:_SAID_LEFT])}{more}"
        say(
            f"left out, as .gitignore says: {names}; a file {INCLUDE} with patterns names what of "
            "it the program needs",
            err=True,
        )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("sending code", total=None, visible=False)

        def sent(done_bytes: int, of_bytes: int) -> None:
            bar.update(task, completed=done_bytes, total=of_bytes, visible=True)

        return client.with_code(job, sent=sent)


def _watch(client: "Client", made: dict[str, Any], *, machine: bool) -> int:
    from headway.clock import SystemClock

    try:
        if "run_id" not in made:
            from headway.views.watch_array import watch_array

            return watch_array(client, made["array_id"], SystemClock(), machine=machine)
        from headway.views.watch import watch_run

        return watch_run(client, made["run_id"], SystemClock(), machine=machine)
    except KeyboardInterrupt:
        is_run = "run_id" in made
        short = made["run_id" if is_run else "array_id"][:8]
        click.echo(
            f"the {'run' if is_run else 'array'} goes on; `headway show {short}` tells how it "
            f"stands, `headway cancel {short}` ends it"
            + (f", `headway logs -f {short}` follows it again" if is_run else ""),
            err=True,
        )
        return INTERRUPTED


def _say_what_would_happen(view: dict[str, Any], members: int) -> None:
    from headway.units import format_size

    if members > 1:
        say(f"the first of its {members} members; the others follow as places come free:")

    said = view["predicted"]
    basis = view["host_memory_why"] or _BASES[view["host_memory_basis"]]
    print_table(
        ["", ""],
        [
            ["image", view["image"] or "–"],
            ["starts", view["reason"]],
            ["position", str(view["position"] or "behind those that are planned for")],
            [
                "expected",
                start_of(view) + promise_of(view),
            ],
            [
                "runtime",
                _runtime(said)
                if view["runtime_known"]
                else "not known: nothing like it, and nothing else, has run here",
            ],
            ["host memory", f"{format_size(view['needs_host_memory_bytes'])}, {basis}"],
            ["each GPU", _each_gpu(view)],
            ["cost", "–" if said["cost"] is None else f"{said['cost']:.4f}"],
            ["rests on", said["basis"]],
        ],
    )
    if sizes := view["sizes"]:
        click.echo(f"\nits size is left open, {sizes[0]['size']} to {sizes[-1]['size']}:")
        print_table(
            ["size", "runtime", "cost"],
            [
                [
                    each["size"],
                    "not known" if each["runtime_s"] is None else _runtime(each),
                    "–" if each["cost"] is None else f"{each['cost']:.4f}",
                ]
                for each in sizes
            ],
        )
    if view["changes"]:
        print_changes(view["changes"], "with one of these it would start earlier:")


def _runtime(said: Mapping[str, Any]) -> str:
    from headway.units import format_duration

    middle, low, high = (
        format_duration(said[key] or 0) for key in ("runtime_s", "runtime_low_s", "runtime_high_s")
    )
    return f"{middle} ({low} to {high})"


_BASES = {
    "declared": "as declared",
    "predicted": "as runs like it have shown",
    "prior": "a guess: nothing like it has ended well",
    "retry": "more than was not enough",
}
"""Where a number of a demand comes from, for people."""


def _each_gpu(view: Mapping[str, Any]) -> str:
    from headway.units import format_size

    if not view["needs_gpus"]:
        return "–"
    size = format_size(view["needs_gpu_memory_bytes"]) if view["needs_gpu_memory_bytes"] else ""
    whole = "whole" + (f", at least {size}" if size else "") if view["needs_whole_gpus"] else size
    return f"{whole}, {_BASES[view['gpu_memory_basis']]}"


COMMANDS = (submit,)
