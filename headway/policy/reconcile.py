"""What a node's janitor does about a run when ledger, Prefect, process and container differ.

Whatever was killed, one of the four still knows. The ledger is the truth
about grants, the engine about containers, Prefect about what the user wants;
a flow process only follows. So: what the user ended is ended; what still runs
is followed by a new flow process; what vanished goes back to the queue.
"""

import enum
from dataclasses import dataclass

from headway.model.run import RunState

MAX_FLOW_STARTS = 20
"""After so many flow processes for one run something is wrong with the run itself."""
FLOW_STARTS_WITHIN_S = 3600.0
"""So long they are counted together: a run of weeks may well need more."""


class PrefectView(enum.StrEnum):
    """What Prefect says about a run, as far as it matters here."""

    SCHEDULED = "scheduled"
    """Some worker will claim it."""
    ACTIVE = "active"
    """Pending, running or paused: a flow process should be there."""
    CRASHED = "crashed"
    """Prefect saw its flow process die."""
    CANCELLING = "cancelling"
    FAILED = "failed"
    """Its flow broke: an ordinary failure is in the ledger before Prefect hears of it."""
    OVER = "over"
    """Completed or cancelled: the user or the flow ended it."""
    MISSING = "missing"
    """Deleted: nobody wants it any more."""
    UNKNOWN = "unknown"
    """The server does not answer; nothing may be concluded."""

    @classmethod
    def of(cls, state_type: str | None) -> "PrefectView":
        """What Prefect's type of a run's state, such as PENDING, means here."""
        return _BY_STATE_TYPE.get(state_type or "", cls.OVER)


_BY_STATE_TYPE = {
    "SCHEDULED": PrefectView.SCHEDULED,
    "PENDING": PrefectView.ACTIVE,
    "RUNNING": PrefectView.ACTIVE,
    "PAUSED": PrefectView.ACTIVE,
    "FAILED": PrefectView.FAILED,
    "CRASHED": PrefectView.CRASHED,
    "CANCELLING": PrefectView.CANCELLING,
}

_ENDED = frozenset(
    {PrefectView.CANCELLING, PrefectView.FAILED, PrefectView.OVER, PrefectView.MISSING}
)


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything known of one run of this node at one moment."""

    state: RunState
    prefect: PrefectView
    flow_alive: bool
    """A flow process holds the run's lock, or this worker is just starting one."""
    container: bool
    """A container of the attempt that has the lease, else of the current one, exists."""
    has_lease: bool
    """On this node; of a waiting run, one that the attempt before has left behind."""
    flow_starts: int = 0
    attempts_left: bool = True
    is_rank: bool = False
    """Part of a gang: it never waits or begins again by itself."""


class Action(enum.StrEnum):
    """One instruction to the janitor. They are carried out in the order given."""

    RENEW = "renew"
    """Renew the lease: the container it stands for exists or is about to."""
    STOP_CONTAINER = "stop_container"
    """Stop with the job's grace time, then remove, and see that it is gone."""
    RELEASE = "release"
    """Release lease, ports and staged copies; only after the container is gone."""
    END_CANCELLED = "end_cancelled"
    """End the run in the ledger as cancelled."""
    END_BROKEN = "end_broken"
    """End the run in the ledger: its flow broke."""
    END_INFRASTRUCTURE = "end_infrastructure"
    """End the run in the ledger: the site failed it too often."""
    REQUEUE = "requeue"
    """Back to the queue as the next attempt; the lease is released with it."""
    GIVE_BACK = "give_back"
    """Back to the queue as the same attempt: it never started."""
    RESCHEDULE = "reschedule"
    """Make Prefect's state SCHEDULED, so that a worker starts a flow process again."""
    SET_RUNNING = "set_running"
    """Make Prefect's state RUNNING: only the flow's stand-in died, the flow goes on."""
    SET_CANCELLED = "set_cancelled"
    """Make Prefect's state CANCELLED."""
    SET_FINAL = "set_final"
    """Make Prefect's state the one that the ledger's exit calls for."""


def reconcile(seen: Situation) -> tuple[Action, ...]:
    """What to do about one run. Empty when nothing differs.

    Nothing is ever started here, and nothing is released while its container
    may live: a release always follows `STOP_CONTAINER` or no container at all.
    """
    if seen.flow_alive:
        # Its own flow is at work, perhaps in clean-up; it knows more than we do.
        renew = (Action.RENEW,) if seen.has_lease else ()
        wrong = seen.prefect is PrefectView.CRASHED and seen.state is RunState.RUNNING
        return (*renew, Action.SET_RUNNING) if wrong else renew
    if seen.state is RunState.ENDED:
        return _after_the_end(seen)
    if seen.prefect is PrefectView.UNKNOWN:
        return (Action.RENEW,) if seen.has_lease else ()
    if seen.prefect in _ENDED:
        return _end_what_nobody_wants(seen)
    if seen.state is RunState.WAITING:
        # A lease here is the last attempt's: with it the run would never be admitted again.
        release = (Action.RELEASE,) if seen.has_lease else ()
        return (*_stop(seen), *release, *_reschedule(seen))
    return _resume(seen)


def _stop(seen: Situation) -> tuple[Action, ...]:
    return (Action.STOP_CONTAINER,) if seen.container else ()


def _reschedule(seen: Situation) -> tuple[Action, ...]:
    return () if seen.prefect is PrefectView.SCHEDULED else (Action.RESCHEDULE,)


def _after_the_end(seen: Situation) -> tuple[Action, ...]:
    release = (Action.RELEASE,) if seen.container or seen.has_lease else ()
    unfinished = seen.prefect in {
        PrefectView.SCHEDULED,
        PrefectView.ACTIVE,
        PrefectView.CRASHED,
        PrefectView.CANCELLING,
    }
    return (*_stop(seen), *release, *((Action.SET_FINAL,) if unfinished else ()))


def _end_what_nobody_wants(seen: Situation) -> tuple[Action, ...]:
    final = (Action.SET_CANCELLED,) if seen.prefect is PrefectView.CANCELLING else ()
    end = Action.END_BROKEN if seen.prefect is PrefectView.FAILED else Action.END_CANCELLED
    return (*_stop(seen), end, Action.RELEASE, *final)


def _resume(seen: Situation) -> tuple[Action, ...]:
    """A granted run whose flow process is gone."""
    if seen.flow_starts >= MAX_FLOW_STARTS:
        return (*_stop(seen), Action.END_INFRASTRUCTURE, Action.RELEASE, Action.SET_FINAL)
    if seen.container:
        return (Action.RENEW, *_reschedule(seen))
    if seen.state is RunState.CLAIMED and not seen.is_rank:
        return (Action.GIVE_BACK, *_reschedule(seen))
    if seen.attempts_left:
        return (Action.REQUEUE, *_reschedule(seen))
    return (Action.END_INFRASTRUCTURE, Action.RELEASE, Action.SET_FINAL)
