"""States of runs in Prefect that the worker and the flows set."""

from datetime import datetime, timedelta
from typing import Any

from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.states import Cancelled, Completed, Failed, Running, Scheduled

from headway.model.prefect_view import PrefectView
from headway.model.run import Exit, ExitKind
from headway.node.mending import SUSPENDED, Mending
from headway.policy.reconcile import Action

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


def scheduled(name: str, message: str, now: datetime, due: datetime | None = None) -> State[Any]:
    """A state with which a worker may start the run, once it is *due* or else very soon."""
    return Scheduled(scheduled_time=due or now + _SOON, name=name, message=message)


def view_of(state: State[Any] | None, now: datetime) -> PrefectView:
    """What a run's *state* means to the janitor *now*."""
    if state is None:
        return PrefectView.UNKNOWN
    view = PrefectView.of(state.type, (now - state.timestamp).total_seconds())
    # A pause that has an end is Prefect's own: it would make the run fail.
    endless = state.state_details.pause_timeout is None
    return PrefectView.SUSPENDED if view is PrefectView.PAUSED and endless else view


def mended(mending: Mending, now: datetime) -> State[Any]:
    """What the janitor leaves to be written."""
    match mending.action:
        case Action.RESCHEDULE:
            why = "its flow process is gone; another one takes it up"
            return scheduled("AwaitingRetry", why, now)
        case Action.SET_RUNNING:
            return Running(message="its flow process goes on")
        case Action.REFUSE_SUSPENSION:
            return Running(message=_NOT_SUSPENDED)
        case Action.SET_SUSPENDED:
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
