"""What a follower does about one run and its job on an engine. Pure functions of values.

The ledger is the truth about what is wanted, the engine about its job. Both change without the
other: whatever was left half done is seen here again, and done.
"""

import enum
import re
from dataclasses import replace

from headway.engine.judge import BY_USER, IN_VAIN
from headway.engine.port import Job, Phase
from headway.model.run import Exit, ExitKind

MORE_TIME = 2.0
"""Times as much time gets an attempt behind one that was ended at a limit that nobody had named."""
LIMIT = "time_limit_s"
"""Name of that limit among what a run is given more of (`policy.demand.raised`)."""
_PASSING = ("submit limit", "temporarily", "try again")
"""Words of a refusal that is over when other jobs of the same user are."""
_NAMED = re.compile(r"\b(?:qos|assoc)\w*limit\b")
"""A limit by Slurm's name, which is surer than the words behind it: those name several."""


class Side(enum.StrEnum):
    """What the ledger has of a run, as far as its job is concerned."""

    WAITS = "waits"
    BARRED = "barred"
    """It waits for its user, or for another run: it is not to be in the engine's queue."""
    UNDER_WAY = "under_way"
    OVER = "over"
    """It has ended, or goes on as another attempt; or nobody knows it."""


class Do(enum.StrEnum):
    """One instruction; they are carried out in the order given."""

    SUBMIT = "submit"
    TELL = "tell"
    """Say why it waits, in the engine's words."""
    BEGIN = "begin"
    FOLLOW = "follow"
    WAIT_AGAIN = "wait_again"
    """The engine has put it back into its queue: the same attempt waits."""
    CONCLUDE = "conclude"
    """Its attempt has ended: learn of it, and see what follows."""
    STOP = "stop"
    FORGET = "forget"
    """Let go of the engine's files of it; the run's own stay."""


_GOES_ON = (Phase.RUNNING, Phase.SUSPENDED, Phase.ENDING)
_STOPPED: dict[Phase | None, tuple[Do, ...]] = {
    None: (),
    **dict.fromkeys(Phase, (Do.STOP,)),
    Phase.ENDED: (Do.FORGET,),
}
_TABLE: dict[Side, dict[Phase | None, tuple[Do, ...]]] = {
    Side.OVER: _STOPPED,
    Side.BARRED: _STOPPED,
    Side.WAITS: {
        None: (Do.SUBMIT,),
        **dict.fromkeys((Phase.WAITING, Phase.HELD, Phase.UNKNOWN), (Do.TELL,)),
        **dict.fromkeys(_GOES_ON, (Do.BEGIN, Do.FOLLOW)),
    },
    Side.UNDER_WAY: {
        None: (Do.CONCLUDE, Do.FORGET),
        **dict.fromkeys((Phase.WAITING, Phase.HELD), (Do.WAIT_AGAIN, Do.TELL)),
        **dict.fromkeys((*_GOES_ON, Phase.UNKNOWN), (Do.FOLLOW,)),
        Phase.ENDED: (Do.CONCLUDE, Do.FORGET),
    },
}
"""By what the ledger has of the run, and the phase of its job; None where there is none."""


def decide(side: Side, job: Job | None) -> tuple[Do, ...]:
    """What to do about a run on that *side* whose job is *job*; None where there is none."""
    if side is Side.WAITS and job is not None:
        if job.phase is Phase.ENDED:
            return _ended_in_line(job)
        if job.is_cancelled:  # for a suspension that is over: it is submitted anew behind its end
            return Do.STOP, Do.TELL
    return _TABLE[side][None if job is None else job.phase]


def _ended_in_line(job: Job) -> tuple[Do, ...]:
    """Its job has ended while the ledger still had the run wait."""
    # Its user, who wants it to go on, had suspended it: that end is not the run's.
    stopped = job.is_cancelled if job.end is None else job.end.message == BY_USER
    began = job.nodes or job.ended_at
    if job.end is not None and job.end.message.startswith(IN_VAIN):
        return (Do.FORGET,)  # the other one may be tried again, as which job the engine cannot know
    if stopped or (job.end is None and not began):  # or the engine lost it
        return (Do.FORGET,)  # the next round sees whether it may be submitted anew, and behind whom
    return (Do.BEGIN, Do.CONCLUDE, Do.FORGET) if began else (Do.CONCLUDE, Do.FORGET)


def end_of(job: Job | None) -> Exit:
    """How an attempt ended whose job has; of one that nobody can say of, that."""
    if job is not None and job.end is not None:
        if job.end.kind is not ExitKind.TIMED_OUT or not job.changed:
            return job.end
        return replace(job.end, message=f"{job.end.message}; {_changed(job)}")
    why = "its files on the shared folder are gone" if job is None or not job.reason else ""
    why = why or (job.reason.sentence if job is not None and job.reason else "")
    return Exit(ExitKind.INFRASTRUCTURE, None, why)


def _changed(job: Job) -> str:
    return (
        f"it was changed there, by somebody or by the cluster's own rules: {', '.join(job.changed)}"
    )


def more_time_s(
    had_s: float | None, max_runtime_s: float | None, pool_s: float | None
) -> float | None:
    """The limit of the attempt behind one that was ended at *had_s*; None where it had all.

    Args:
        had_s: Its limit, by the engine.
        max_runtime_s: The user's, which is never exceeded.
        pool_s: The most that its pool gives.
    """
    bounds = [each for each in (max_runtime_s, pool_s) if each is not None]
    if had_s is None or any(had_s >= each for each in bounds):
        return None
    return min(had_s * MORE_TIME, *bounds) if bounds else had_s * MORE_TIME


def is_passing(said: str) -> bool:
    """Whether a refusal, in the engine's words, is over by itself."""
    text = said.lower()
    if named := _NAMED.findall(text):
        return all("submit" in each for each in named)
    return any(word in text for word in _PASSING)


def about(job: Job) -> str:
    """What is known of one that has not ended, as a sentence."""
    text = job.phase.value
    if job.phase is Phase.RUNNING and job.nodes:
        text += f" on {job.nodes}"
    if job.reason is not None and job.phase is not Phase.RUNNING:
        step = f"; {job.reason.step}" if job.reason.step else ""
        text += f": {job.reason.sentence}{step}"
    text += f"; {_changed(job)}" if job.changed else ""
    if job.expected_start_at is not None:
        text += f"; by its scheduler's forecast it starts {job.expected_start_at:%d %b %H:%M} UTC"
    return text
