"""The command `replay`: a trace of jobs through the policy, on a simulated clock."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from headway.cli.inputs import A_FILE, SOME_SIZE, name_of, read_data
from headway.cli.output import (
    Columns,
    Json,
    as_json,
    print_json,
    print_rows,
    print_table,
    progress_bar,
    say,
)
from headway.errors import InvalidInput
from headway.units import format_duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from headway.policy.settings import PolicySettings

_POLICIES = ("fifo", "easy", "conservative", "headway")
_ALL = (
    ("fifo", "user", "whole"),
    ("easy", "user", "whole"),
    ("easy", "learned", "headway"),
    ("conservative", "learned", "headway"),
    ("headway", "learned", "headway"),
)
"""Slurm's way, and every rival with what headway has: the same estimates and the same sharing."""


@click.command()
@click.argument("trace", type=A_FILE)
@click.option("--nodes", type=click.IntRange(1, 10_000), required=True, help="Nodes.")
@click.option("--gpus", type=click.IntRange(1, 1024), required=True, help="GPUs on each node.")
@click.option(
    "--gpu-memory", type=SOME_SIZE, default="24GiB", show_default=True, help="Of each GPU."
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice((*_POLICIES, "all")),
    multiple=True,
    default=("headway",),
    show_default=True,
    help="Who decides; may be given several times.",
)
@click.option(
    "--estimates",
    type=click.Choice(["user", "learned", "given", "perfect"]),
    help="What is known of runtimes.  [default: learned for headway, user for the others]",
)
@click.option(
    "--sharing",
    type=click.Choice(["whole", "memory", "headway"]),
    help="Who may share a GPU.  [default: headway for headway, whole for the others]",
)
@click.option(
    "--team",
    "weights",
    multiple=True,
    metavar="NAME=WEIGHT",
    help="A team's weight, 1 where none is given; may be given several times.",
)
@click.option(
    "--set",
    "knobs",
    multiple=True,
    metavar="KNOB=VALUE",
    help="A knob of headway's policy, such as promise_factor=2; may be given several times.",
)
@click.option(
    "--starts",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    metavar="SHARE",
    help="Say when this share of the waiting jobs will start, and how well that was said; each "
    "costs about a second.",
)
@as_json
def replay(
    *,
    trace: BinaryIO,
    nodes: int,
    gpus: int,
    gpu_memory: int,
    policies: tuple[str, ...],
    estimates: str | None,
    sharing: str | None,
    weights: tuple[str, ...],
    knobs: tuple[str, ...],
    starts: float,
    machine: bool,
) -> None:
    """Simulate the jobs of TRACE on a cluster; compare their waits.

    TRACE is a CSV file with the columns job_id, team, submit_s, duration_s, gpus,
    gpu_memory_bytes, gpu_util_frac, user, recipe, user_limit_s, predicted_s and predicted_high_s.
    Learned estimates start cold and learn from the jobs that have ended by then. --policy all
    compares headway's policy with the others.

    Examples:
      headway replay jobs.csv --nodes 4 --gpus 8
      headway replay jobs.csv --nodes 4 --gpus 8 --policy all --json
    """
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    from headway.replay.cluster import Shape
    from headway.replay.metrics import document
    from headway.replay.said_starts import SaidStarts
    from headway.replay.simulate import PolicyName, simulate
    from headway.replay.trace_jobs import Estimates, GpuSharing, read_jobs

    settings = _settings(knobs, weights)
    shape = Shape(nodes, gpus, gpu_memory)
    data, file_name = read_data(trace), Path(name_of(trace)).name
    documents: list[Json] = []
    for name, *default in _asked(policies):
        policy = PolicyName(name)
        told, shared = Estimates(estimates or default[0]), GpuSharing(sharing or default[1])
        rows = read_jobs(data, file_name, told, shared)
        said = SaidStarts(starts, told) if starts and policy is PolicyName.HEADWAY else None
        with progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
            task = bar.add_task(f"replay {policy}", total=len(rows))
            report = partial(_advance, bar, task)
            result = simulate(
                rows, shape, policy, shared, told, settings=settings, said=said, report=report
            )
        documents.append(document(result, policy, told, shared, settings, said=said))
    if machine:
        print_json(documents)
    else:
        _print(documents)


def _asked(policies: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Policies with the estimates and the sharing that they have where none are given."""
    if "all" in policies:
        return list(_ALL)
    ours, others = ("learned", "headway"), ("user", "whole")
    return [(name, *(ours if name == "headway" else others)) for name in dict.fromkeys(policies)]


def _settings(knobs: Sequence[str], weights: Sequence[str]) -> "PolicySettings":
    """Settings with *knobs*, each `NAME=NUMBER`; whole numbers where the default is one.

    *weights* are those of teams, each `NAME=WEIGHT`.
    """
    from headway.policy.settings import PolicySettings, TeamSettings

    kinds = {one.name: type(one.default) for one in dataclasses.fields(PolicySettings)}
    numbers = {name: kind for name, kind in kinds.items() if kind in {int, float}}
    given: dict[str, int | float] = {}
    for knob in knobs:
        name, _, text = knob.partition("=")
        if name not in numbers:
            raise InvalidInput("--set", knob, f"give NAME=NUMBER, NAME one of {', '.join(numbers)}")
        try:
            given[name] = numbers[name](text)
        except ValueError as error:
            whole = "a whole number" if numbers[name] is int else "a number"
            raise InvalidInput(f"--set {name}", text, f"give {whole}") from error
    teams = {}
    for text in weights:
        name, _, weight = text.rpartition("=")
        try:
            teams[name] = TeamSettings(weight=float(weight))
        except ValueError as error:
            raise InvalidInput("--team", text, "give NAME=WEIGHT, such as vision=2") from error
    # The types were checked above, by name.
    return PolicySettings(**given, teams=teams)  # type: ignore[arg-type]


def _advance(bar: "Progress", task: "TaskID", ended: int) -> None:
    bar.update(task, completed=ended)


def _print(documents: Sequence[Json]) -> None:
    print_rows(_COLUMNS, documents)
    for each in documents:
        if each["starts"] is not None:
            _say_starts(each["starts"])
    for key, heading in (("by_gpus", "GPUs"), ("by_team", "team"), ("by_user", "user")):
        _print_groups(documents, key, heading)


def _say_starts(score: Json) -> None:
    error = score["median_error_frac"]
    off = "" if error is None else f"; median error {error:.0%} of the wait"
    say("")
    say(
        f"starts said at submission: {score['starts']}, {score['coverage_frac']:.1%} of them "
        f"within their 80 % interval{off} ({score['waited']} that waited a minute or more)"
    )


def _kept(document: Json) -> str:
    promises = document["promises"]
    return f"{1 - document['promises_broken'] / promises:.1%}" if promises else ""


def _print_groups(documents: Sequence[Json], key: str, heading: str) -> None:
    """Mean and longest wait of each group under each policy, where there are several groups."""
    groups = documents[0][key]
    if len(groups) < 2:
        return
    say("")
    named = [f"{each['policy']}, {each['estimates']}, {each['sharing']}" for each in documents]
    alone = ["own share, first come"] if "first_come_wait_s" in groups[0] else []
    rows = []
    for at, group in enumerate(groups):
        first, jobs, *_ = group.values()
        cells = [str(first), str(jobs)]
        cells += [format_duration(group["first_come_wait_s"]) for _ in alone]
        for each in documents:
            mean_s, longest_s = each[key][at]["mean_wait_s"], each[key][at]["max_wait_s"]
            cells.append(f"{format_duration(mean_s)} ({format_duration(longest_s)})")
        rows.append(cells)
    print_table([heading, "jobs", *alone, *named], rows)


def _lasts(field: str) -> Callable[[Json], str]:
    """The cell of a duration."""
    return lambda document: format_duration(float(document[field]))


_COLUMNS: Columns = {
    "policy": "policy",
    "estimates": "estimates",
    "sharing": "sharing",
    "mean wait": _lasts("mean_wait_s"),
    "median": _lasts("median_wait_s"),
    "95 %": _lasts("p95_wait_s"),
    "longest": _lasts("max_wait_s"),
    "completion": _lasts("mean_completion_s"),
    "slowdown": lambda document: f"{document['mean_bounded_slowdown']:.1f}",
    "used": lambda document: f"{document['utilisation_frac']:.0%}",
    "makespan": _lasts("makespan_s"),
    "stretch": lambda document: f"{document['mean_stretch']:.3f}",
    "promises kept": _kept,
}
