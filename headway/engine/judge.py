"""What is true of a job, by what three witnesses say.

These are the engine's queue, the record of the wrapper, and what was kept of the queue before the
engine forgot. Absence alone proves nothing. Pure
functions of values; any engine whose machines share a folder can use them.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from headway.engine.port import Job, Phase, Reason
from headway.engine.record import Record, moment
from headway.model.run import Exit, ExitKind
from headway.units import format_duration

_EARLY_S = 90.0
"""An engine's signal before the end of the time may come so much too soon (Slurm: a minute)."""
FORGOTTEN = Reason(
    "",
    "the engine does not know it any more, and its wrapper never wrote how it ended",
    "its log and its checkpoint, if it has any, are in its folder; submit it again if it is needed",
)
NEVER_BEGAN = Reason(
    "",
    "the engine does not know it, and it never began: it was lost with the engine's last seconds, "
    "or somebody cancelled it while it waited, and that was forgotten",
    "submit it again under the same key",
)
NO_TRACE = Reason(
    "",
    "the engine says that it ended well, and nothing of it ever ran: one that loses its newest "
    "memory takes a job for another one",
    "submit it again",
)
IN_VAIN = "the job that it was to follow has not ended as it would have had to"
BY_USER = "cancelled by its user"
OVER_MEMORY = "killed at its memory limit"
AGAIN = Reason("", "it had begun, and somebody or the engine put it into the queue again")


@dataclass(frozen=True, slots=True)
class Given:
    """What an engine was given beside resources, or has now: somebody may have changed it there."""

    pool: str
    time_limit_s: float | None
    """Asked for: None for the pool's own."""
    nice: int
    follows: tuple[str, ...] | None
    """The engine's ids of jobs whose end it waits for; None: not known."""


def changed(asked: Given, now: Given) -> tuple[str, ...]:
    """What is otherwise now, in a clause each. One that it waits for no more may have ended."""
    found = []
    if now.pool != asked.pool:
        found.append(f"its partition is {now.pool}, not {asked.pool}")
    if asked.time_limit_s not in {None, now.time_limit_s}:
        has, had = (
            "unlimited" if each is None else format_duration(each)
            for each in (now.time_limit_s, asked.time_limit_s)
        )
        found.append(f"its time limit is {has}, not {had}")
    if now.nice != asked.nice:
        found.append(f"its nice value is {now.nice}, not {asked.nice}")
    if asked.follows is not None:
        more = sorted(set(now.follows or ()) - {each.partition("_")[0] for each in asked.follows})
        found += [f"it waits for the end of job {each}, too" for each in more]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as the engine's queue has it."""

    engine_id: str
    state: str
    phase: Phase
    kind: ExitKind | None = None
    """Of one that has ended: how, by the engine's word."""
    sentence: str = ""
    """What the state means."""
    reason: Reason | None = None
    started_at: datetime | None = None
    expected_start_at: datetime | None = None
    time_limit_s: float | None = None
    nodes: str = ""
    given: Given | None = None
    """None where the engine does not tell."""


def judged(
    key: str,
    member: int,
    seen: Seen | None,
    record: Record | None,
    *,
    grace_s: float = 0.0,
    marked: bool = False,
    kept: tuple[str, Exit] | None = None,
) -> Job:
    """What is true of one job.

    Args:
        key: Its key.
        member: Of an array; else 0.
        seen: How the queue has it now; None where the engine does not name it.
        record: Its wrapper's; None where there is none yet.
        grace_s: Between its SIGTERM and its SIGKILL.
        marked: Its user asked to end it.
        kept: The engine's last word on it, and how it ended, from when it knew it.
    """
    if seen is None:
        return _gone(key, member, record, kept, marked=marked)
    own = record.end if record else None
    job = Job(
        key, member, seen.engine_id, seen.phase, seen.state, seen.reason,
        expected_start_at=seen.expected_start_at, started_at=seen.started_at,
        time_limit_s=seen.time_limit_s, nodes=seen.nodes,
    )  # fmt: skip
    ended_at = moment(record.ended_at) if record and own else None
    if seen.phase is Phase.ENDED:
        if record and own:  # of its program, not of what the engine does around it
            job = replace(job, started_at=moment(record.started_at))
        return replace(job, end=_end(seen, record, grace_s, marked=marked), ended_at=ended_at)
    if own is None:
        return job
    if seen.phase in {Phase.WAITING, Phase.HELD}:
        if seen.reason is None:
            return replace(job, reason=AGAIN)
        sentence = f"{AGAIN.sentence}; {seen.reason.sentence}"
        return replace(job, reason=replace(seen.reason, sentence=sentence))
    # Started anew, the file server still shows the record of the start before.
    anew = seen.started_at and ended_at and seen.started_at > ended_at
    return job if anew else replace(job, phase=Phase.ENDING)


def _gone(
    key: str, member: int, record: Record | None, kept: tuple[str, Exit] | None, *, marked: bool
) -> Job:
    """A job that the engine does not name: it has ended, or never began."""
    if record is None:
        state, end = kept or ("", Exit(ExitKind.CANCELLED, None, BY_USER) if marked else None)
        reason = None if end else NEVER_BEGAN
        return Job(key, member, "", Phase.ENDED, state, reason=reason, end=end)
    state, end = kept or ("", record.end)
    return Job(
        key,
        member,
        record.job,
        Phase.ENDED,
        state,
        reason=None if end else FORGOTTEN,
        end=end,
        started_at=moment(record.started_at),
        ended_at=moment(record.ended_at),
        nodes=record.node,
    )


def _end(seen: Seen, record: Record | None, grace_s: float, *, marked: bool) -> Exit:
    """How a job ended that the engine says has ended."""
    own = record.end if record else None
    code = own.code if own else None
    kind = seen.kind or ExitKind.INFRASTRUCTURE
    said = seen.sentence + (f" ({seen.reason.sentence})" if seen.reason else "")
    if marked or (own and own.kind is ExitKind.CANCELLED and record and record.cancelled):
        return Exit(ExitKind.CANCELLED, code, BY_USER)
    if kind not in {ExitKind.OK, ExitKind.FAILED}:
        return Exit(kind, code, said)
    if own is None or record is None:
        return Exit(kind, code, "" if kind is ExitKind.OK else said)
    if record.asked_at is None:
        return own
    ran_s = record.asked_at - record.started_at
    if seen.time_limit_s is not None and ran_s >= seen.time_limit_s - grace_s - _EARLY_S:
        message = f"asked to stop {grace_s:.0f} s before its time was over, which it did"
        return Exit(ExitKind.TIMED_OUT, code, message)
    return own
