"""Commands that run a folder of code: run, rerun."""

import json
import re
from pathlib import Path

import click

from headway.cli import submit
from headway.cli.arrays import array_of
from headway.cli.completion import RUN
from headway.cli.inputs import open_client, overrides
from headway.cli.output import as_json, say
from headway.cli.submit import Environment, Place


@click.command()
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@submit.environment_options
@click.option("--gpus", default="0", help="GPUs, 2; or a range, 2-8: as many as pay.")
@click.option("--name", help="Of the run; the program's when left out.")
@click.option(
    "--workdir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Folder that is sent along, and in which the program starts; here when left out.",
)
@click.option(
    "--array",
    "parameters",
    multiple=True,
    metavar="NAME=VALUES",
    help="Run it once for every combination: --array lr=0.1,0.01 --array seed=1..5",
)
@click.option("--at-most", type=click.IntRange(1), help="Members of the array that run at once.")
@overrides
@submit.place_options
@click.option("-d", "--detach", is_flag=True, help="Do not follow it: print its id.")
@as_json
def run(
    *,
    program: str,
    arguments: tuple[str, ...],
    environment: Environment,
    gpus: str,
    name: str | None,
    workdir: Path,
    parameters: tuple[str, ...],
    at_most: int | None,
    overrides: tuple[str, ...],
    place: Place,
    detach: bool,
    machine: bool,
) -> None:
    """Run a program of this folder on the site.

    What git tracks in the folder, or .gitignore does not exclude, is sent along. The log is shown
    until the run has ended; Ctrl-C stops watching, not the run. With --array, `{lr}` in the
    arguments stands for the member's value of lr.

    Examples:
      headway run train.py --gpus 1 -- --epochs 10
      headway run train.py --array lr=0.1,0.01 -- --lr '{lr}'
    """
    from headway.model.job_text import read_job

    document = {
        **environment,
        "name": name or _name_of(program),
        "command": _command(program, arguments, workdir),
        "resources": {"gpus": int(gpus) if re.fullmatch(r"[0-9]{1,9}", gpus) else gpus},
        "workdir": str(workdir),
    }
    read = read_job(json.dumps(document), filename="command line", overrides=overrides)
    array = array_of(read, parameters, at_most)
    with open_client() as client:
        made = submit.submit_job(
            client, submit.with_code(client, read.job.document()), array, **place
        )
        if environment["python"] == submit.NEWEST and not machine:
            say(f"in {made['image']}, the newest Python that its nodes have; --image names another")
        submit.tell(client, made, watch=not detach, machine=machine)


@click.command()
@click.argument("run_", metavar="RUN", type=RUN)
@overrides
@click.option("--watch", is_flag=True, help="Follow the run to its end.")
@as_json
def rerun(*, run_: str, overrides: tuple[str, ...], watch: bool, machine: bool) -> None:
    """Submit a run's job again, as a new run with the same code.

    Examples:
      headway rerun flights --watch
      headway rerun flights --set resources.cpus=4
    """
    from headway.model.job_text import read_job

    with open_client() as client:
        job = dict(client.run(run_)["job"]) | {"owner": ""}
        read = read_job(json.dumps(job), filename=f"run {run_}", overrides=overrides)
        submit.tell(client, client.submit(read.job.document()), watch=watch, machine=machine)


def _command(program: str, arguments: tuple[str, ...], workdir: Path) -> list[str]:
    """What starts *program*; a script whose kind is known is looked for before it is sent."""
    starts = _STARTS.get(Path(program).suffix, [])
    if starts and not (workdir / program).is_file():
        raise click.BadParameter(f"{program!r} is no file of the folder {str(workdir)!r}")
    return [*starts, program, *arguments]


_STARTS = {".py": ["python", "-u"], ".sh": ["sh"]}
"""Lines of a program whose output is no terminal come when they are printed: ``-u``."""


def _name_of(program: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(program).stem).lstrip("._-")[:63] or "run"
