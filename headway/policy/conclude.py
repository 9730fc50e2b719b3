"""What follows the end of an attempt: the end of its run, or another attempt that asks for more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headway.model.attempt_record import Failures
from headway.model.lease import Basis, Demand
from headway.model.node import NodeSpace
from headway.model.run import RESTARTED, SICK_GPU, Exit, ExitKind
from headway.policy.demand import (
    after_gpu_out_of_memory,
    after_out_of_memory,
    largest_gpu_bytes,
    largest_host_bytes,
    runs_again,
)
from headway.units import format_size

_RESTARTS_AN_HOUR = 3


@dataclass(frozen=True, slots=True)
class Had:
    """What an attempt had, and what there is: the bounds of what the next one may ask for."""

    demand: Demand
    host_peak_bytes: int | None
    gpu_bytes: int
    """Most that it was granted of any GPU."""
    gpu_above_bytes: int | None
    """Where it ran out of GPU memory, it needs more than this; None where others held its grant."""
    spaces: Sequence[NodeSpace]
    """The nodes that its run may go to."""
    nodes: int
    """So many of them it needs at once."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """An attempt that has ended."""

    exit_: Exit
    retries: int
    """So often its job may be tried again."""
    before: Failures = field(default_factory=Failures)
    """How often its run's attempts had failed before this one."""
    override: Mapping[str, Any] = field(default_factory=dict)
    """What its run was given more of after attempts before, as `demand.raised` takes it."""
    had: Had | None = None
    """None where it ended before its container did."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended."""

    exit_: Exit


@dataclass(frozen=True, slots=True)
class Again:
    """The run goes back to the queue as its next attempt."""

    exit_: Exit
    """With what the next attempt gets."""
    override: Mapping[str, Any]
    """For the run from now on, as `demand.raised` takes it."""


def conclude(end: AttemptEnd) -> Ended | Again:
    """Whether an attempt that ended so is followed by another one, and what that one asks for.

    An attempt that ran out of memory is followed by one with more, unless it
    had all that a node of the site could give.
    """
    kind = end.exit_.kind
    if not runs_again(end.exit_, end.retries, end.before) and not _was_not_named(end):
        return Ended(end.exit_)
    if kind is ExitKind.PREEMPTED:
        return Again(end.exit_, end.override)
    if kind is ExitKind.OUT_OF_MEMORY and end.had is not None:
        return _with_more_host_memory(end, end.had)
    if kind is ExitKind.GPU_OUT_OF_MEMORY and end.had is not None:
        return _with_more_gpu_memory(end, end.had)
    return _again(end, "")


def preempted(exit_: Exit, for_run_id: str) -> Exit:
    """The exit of an attempt that ended as *exit_* since it was stopped for another run."""
    return Exit(
        ExitKind.PREEMPTED,
        exit_.code,
        f"stopped for run {for_run_id} of a higher priority; it goes on from its checkpoint when "
        "there is room again",
    )


def restarted(exit_: Exit, before: Failures, *, alone: bool) -> Exit:
    """The exit of an attempt that ended as *exit_* since its machine was restarted.

    That costs no retry, unless it happens so often that the run itself may bring machines down. A
    gang, which is not *alone* on its node, starts anew as after any other failure of the site.
    """
    if alone and before.restarts < _RESTARTS_AN_HOUR:
        return Exit(ExitKind.PREEMPTED, exit_.code, RESTARTED)
    return Exit(ExitKind.INFRASTRUCTURE, exit_.code, "its machine was restarted")


def on_sick_gpu(exit_: Exit, why: str, before: Failures, *, alone: bool) -> Exit:
    """The exit of an attempt that ended as *exit_* on a GPU that is sick, as *why* says.

    It is repeated as after a restart: a program that makes GPUs sick does not go on for ever.
    """
    is_spared = alone and before.restarts < _RESTARTS_AN_HOUR
    kind = ExitKind.PREEMPTED if is_spared else ExitKind.INFRASTRUCTURE
    goes_on = "; it goes on elsewhere from its checkpoint" if is_spared else ""
    return Exit(kind, exit_.code, f"{SICK_GPU} ({why}){goes_on}")


def grown(exit_: Exit) -> Exit:
    """The same where it was stopped to go on at a larger size itself."""
    why = "stopped at its checkpoint, to go on from it at a larger size, for which there is room"
    return Exit(ExitKind.PREEMPTED, exit_.code, why)


def _with_more_host_memory(end: AttemptEnd, had: Had) -> Ended | Again:
    largest = largest_host_bytes(had.demand, had.spaces, had.nodes)
    more = after_out_of_memory(had.demand, had.host_peak_bytes, largest)
    if more is None:
        return _had_all(end, "all the host memory that a node could give")
    all_of_it = ", all that a node could give" if more == largest else ""
    guessed = {"host_memory_guessed": True} if _was_not_named(end) else {}
    asks = {"host_memory_bytes": more, **guessed}
    return _again(end, f" with {format_size(more)}{all_of_it}", asks)


def _was_not_named(end: AttemptEnd) -> bool:
    """Whether it was killed for memory that its job had not named, but the site.

    More is tried then, up to what a node could give.
    """
    if end.exit_.kind is not ExitKind.OUT_OF_MEMORY or end.had is None or not end.retries:
        return False
    first = end.had.demand.host_memory_basis in {Basis.PRIOR, Basis.PREDICTED}
    return first or bool(end.override.get("host_memory_guessed"))


def _with_more_gpu_memory(end: AttemptEnd, had: Had) -> Ended | Again:
    if had.gpu_above_bytes is None:
        return _again(end, " where there is room")
    demand = had.demand
    largest = largest_gpu_bytes(demand, [each.node for each in had.spaces], had.nodes)
    above_bytes = max(had.gpu_above_bytes, demand.gpu_memory_bytes, had.gpu_bytes)
    more = after_gpu_out_of_memory(demand, above_bytes, largest)
    if more is None:
        return _had_all(end, f"the whole of the largest GPU there is, {format_size(largest)}")
    whole = "a whole GPU of at least " if more["whole_gpus"] else ""
    return _again(end, f" with {whole}{format_size(more['gpu_memory_bytes'])}", more)


def _again(end: AttemptEnd, how: str, more: Mapping[str, Any] | None = None) -> Again:
    exit_ = replace(end.exit_, message=f"{end.exit_.message}; it is tried again{how}")
    return Again(exit_, {**end.override, **(more or {})})


def _had_all(end: AttemptEnd, what: str) -> Ended:
    return Ended(replace(end.exit_, message=f"{end.exit_.message}; it had {what}"))
