"""States of runs in Prefect that the worker and the flows set."""

from datetime import datetime, timedelta
from typing import Any

from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.states import Cancelled, Completed, Failed, Pending, Running, Scheduled

from headway.model.prefect_view import AWAITING_HEADROOM, PrefectView
from headway.model.run import Exit, ExitKind
from headway.policy.agree import Change
from headway.scheduler.reconciler import SUSPENDED, Mending

_SOON = timedelta(seconds=2)


def ended(exit_: Exit) -> State[Any]:
    """The last state of a run that ended so."""
    if exit_.kind is ExitKind.OK:
        return Completed(message=exit_.message)
    if exit_.kind is ExitKind.CANCELLED:
        return Cancelled(message=exit_.message)
    if exit_.kind is ExitKind.TIMED_OUT:
        return Failed(name="TimedOut", message=exit_.message)
    return Failed(message=exit_.message)


def awaiting(message: str, now: datetime, due: datetime | None = None) -> State[Any]:
    """The state of a run that waits, and may start once it is *due* or else very soon."""
    return Scheduled(scheduled_time=due or now + _SOON, name=AWAITING_HEADROOM, message=message)


def granted() -> State[Any]:
    """The state of a run that has its place, until its flow process begins."""
    return Pending(message="granted a place")


def view_of(state: State[Any], now: datetime) -> PrefectView:
    """What a run's *state* means *now*."""
    view = PrefectView.of(state.type, state.name, (now - state.timestamp).total_seconds())
    # A pause that has an end is Prefect's own: it would make the run fail.
    endless = state.state_details.pause_timeout is None
    return PrefectView.SUSPENDED if view is PrefectView.PAUSED and endless else view


def mended(mending: Mending, now: datetime) -> State[Any]:
    """What is left to be written of a run."""
    match mending.change:
        case Change.RESCHEDULE:
            return awaiting(mending.run.reason, now)
        case Change.SET_PENDING:
            return granted()
        case Change.SET_RUNNING:
            return Running(message="it goes on")
        case Change.REFUSE_SUSPENSION:
            return Running(message=_NOT_SUSPENDED)
        case Change.SET_SUSPENDED:
            return suspended(SUSPENDED.message)
        case _:
            return Cancelled() if mending.run.exit is None else ended(mending.run.exit)


def suspended(message: str) -> State[Any]:
    """The state of a run that waits, for as long as its user likes, to be resumed."""
    resumable = StateDetails(pause_reschedule=True)
    return State(type=StateType.PAUSED, name="Suspended", message=message, state_details=resumable)


_NOT_SUSPENDED = (
    "not suspended: a job on several nodes holds them all at once, and has no checkpoint of its "
    "own; cancel it, and retry it later"
)
