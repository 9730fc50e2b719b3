"""The command `replay`: a trace of jobs through the policy, on a simulated clock."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headway.cli.inputs import A_FILE, name_of, read_data
from headway.cli.output import as_json, print_json, print_table, say

if TYPE_CHECKING:
    from headway.policy.settings import PolicySettings
    from headway.replay.cluster import Shape
    from headway.replay.said_starts import SaidStarts
    from headway.replay.simulate import PolicyName, Result
    from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob

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
@click.argument("trace", type=A_FILE, required=False)
@click.option("--nodes", type=click.IntRange(1, 10_000), help="Nodes.")
@click.option("--gpus", type=click.IntRange(1, 1024), help="GPUs on each node.")
@click.option(
    "--from-ledger",
    is_flag=True,
    help="In the place of a trace: what happened here, and what would have with other rules or "
    "machines.",
)
@click.option("--last", default="30d", show_default=True, help="So far back in the ledger.")
@click.option(
    "--more-gpus",
    type=click.IntRange(0, 1024),
    default=2,
    show_default=True,
    help="GPUs that are added, with --from-ledger.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a PNG of what each change saves into this file, with --from-ledger.",
)
@click.option(
    "--gpu-memory", default="24GiB", show_default=True, metavar="SIZE", help="Of each GPU."
)
@click.option(
    "--host-memory",
    metavar="SIZE",
    help="That may be promised on each node, by the columns about it; headway is replayed with and "
    "without lending what is idle of it.",
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
    trace: BinaryIO | None,
    nodes: int | None,
    gpus: int | None,
    from_ledger: bool,
    last: str,
    more_gpus: int,
    picture: Path | None,
    gpu_memory: str,
    host_memory: str | None,
    policies: tuple[str, ...],
    estimates: str | None,
    sharing: str | None,
    weights: tuple[str, ...],
    knobs: tuple[str, ...],
    starts: float,
    machine: bool,
) -> None:
    """Replay the jobs of TRACE on a cluster of equal nodes and say how long they wait.

    TRACE is a CSV file with the columns job_id, team, submit_s, duration_s,
    gpus, gpu_memory_bytes, gpu_util_frac, user, recipe, user_limit_s, predicted_s,
    predicted_high_s, host_memory_bytes, host_peak_bytes and preemptible. Learned
    estimates start cold and learn from the jobs that have ended by then; --policy
    all compares with the rivals.
    """
    from headway.cli.past import say_past

    settings = _settings(knobs, weights)
    if from_ledger:
        if trace is not None:
            raise click.UsageError("give a trace or --from-ledger, not both")
        say_past(last, more_gpus, settings.teams, picture, machine=machine)
        return
    if trace is None or nodes is None or gpus is None:
        raise click.UsageError("give a trace with --nodes and --gpus, or --from-ledger")
    from headway.replay.cluster import Shape
    from headway.replay.metrics import document
    from headway.replay.said_starts import SaidStarts
    from headway.replay.simulate import PolicyName
    from headway.replay.trace_jobs import Estimates, GpuSharing, read_jobs

    host_bytes = _size(host_memory, "--host-memory") if host_memory is not None else 0
    shape = Shape(nodes, gpus, _size(gpu_memory, "--gpu-memory"), host_bytes)
    data, file_name = read_data(trace), Path(name_of(trace)).name
    documents: list[dict[str, Any]] = []
    for name, *default in _asked(policies):
        policy = PolicyName(name)
        told, shared = Estimates(estimates or default[0]), GpuSharing(sharing or default[1])
        rows = read_jobs(data, file_name, told, shared)
        if not host_bytes:
            rows = [dataclasses.replace(row, host_memory_bytes=0) for row in rows]
        ours = policy is PolicyName.HEADWAY
        for lends in (False, True) if host_bytes and ours else (settings.lend_host_memory,):
            tried = dataclasses.replace(settings, lend_host_memory=lends)
            said = SaidStarts(starts, told) if starts and ours else None
            result = _simulate(rows, shape, policy, told, sharing=shared, settings=tried, said=said)
            documents.append(document(result, policy, told, shared, tried, said=said))
    if machine:
        print_json(documents)
    else:
        _print(documents, about_lending=bool(host_bytes))


def _asked(policies: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Policies with the estimates and the sharing that they have where none are given."""
    if "all" in policies:
        return list(_ALL)
    ours, others = ("learned", "headway"), ("user", "whole")
    return [(name, *(ours if name == "headway" else others)) for name in dict.fromkeys(policies)]


def _size(text: str, option: str) -> int:
    from headway.errors import InvalidInput
    from headway.units import parse_size

    try:
        size_bytes = parse_size(text)
    except ValueError as error:
        raise InvalidInput(option, text, "give a size such as 24GiB") from error
    if size_bytes < 1:
        raise InvalidInput(option, text, "give more than nothing")
    return size_bytes


def _settings(knobs: Sequence[str], weights: Sequence[str]) -> "PolicySettings":
    """Settings with *knobs*, each `NAME=NUMBER`; whole numbers where the default is one.

    *weights* are those of teams, each `NAME=WEIGHT`.
    """
    from dataclasses import fields

    from headway.errors import InvalidInput
    from headway.policy.settings import PolicySettings, TeamSettings

    kinds = {one.name: type(one.default) for one in fields(PolicySettings)}
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


def _simulate(
    rows: "Sequence[TraceJob]",
    shape: "Shape",
    policy: "PolicyName",
    estimates: "Estimates",
    *,
    sharing: "GpuSharing",
    settings: "PolicySettings",
    said: "SaidStarts | None",
) -> "Result":
    """Replay with a progress bar, which is shown on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from headway.replay.simulate import simulate

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(f"replay {policy}", total=len(rows))
        return simulate(
            rows,
            shape,
            policy,
            sharing,
            estimates,
            settings=settings,
            said=said,
            report=lambda ended: bar.update(task, completed=ended),
        )


def _print(documents: "Sequence[dict[str, Any]]", *, about_lending: bool) -> None:
    from headway.units import format_duration

    lending = ["lends", "lent", "stopped"] if about_lending else []

    names = ("policy", "estimates", "sharing")
    times = ("mean_wait_s", "median_wait_s", "p95_wait_s", "max_wait_s", "mean_completion_s")
    print_table(
        [
            *names,
            *("mean wait", "median", "95 %", "longest", "completion"),
            *("slowdown", "used", "makespan", "stretch", "promises kept"),
            *lending,
        ],
        [
            [
                *(str(each[name]) for name in names),
                *(format_duration(float(each[name])) for name in times),
                f"{each['mean_bounded_slowdown']:.1f}",
                f"{each['utilisation_frac']:.0%}",
                format_duration(float(each["makespan_s"])),
                f"{each['mean_stretch']:.3f}",
                _kept(each),
                *([_yes(each["lends"]), str(each["lent"]), str(each["stops"])] if lending else ()),
            ]
            for each in documents
        ],
    )

    for each in documents:
        if each["starts"] is not None:
            _say_starts(each["starts"])
    for key, heading in (("by_gpus", "GPUs"), ("by_team", "team"), ("by_user", "user")):
        _print_groups(documents, key, heading)


def _say_starts(score: "dict[str, Any]") -> None:
    error = score["median_error_frac"]
    off = "" if error is None else f"; median error {error:.0%} of the wait"
    say("")
    say(
        f"starts said at submission: {score['starts']}, {score['coverage_frac']:.1%} of them "
        f"within their 80 % interval{off} ({score['waited']} that waited a minute or more)"
    )


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _kept(document: "dict[str, Any]") -> str:
    promises = document["promises"]
    return f"{1 - document['promises_broken'] / promises:.1%}" if promises else ""


def _print_groups(documents: "Sequence[dict[str, Any]]", key: str, heading: str) -> None:
    """Mean and longest wait of each group under each policy, where there are several groups."""
    from headway.units import format_duration

    groups = documents[0][key]
    if len(groups) < 2:
        return
    say("")
    named = [
        f"{each['policy']}, {each['estimates']}, {each['sharing']}"
        + (", lends" if each["lent"] else "")
        for each in documents
    ]
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


COMMANDS = (replay,)
