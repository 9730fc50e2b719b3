"""States of runs in Prefect that the worker sets."""

from datetime import datetime, timedelta
from typing import Any

from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.states import Cancelled, Completed, Failed, Running

from headway.model.run import ExitKind
from headway.node.janitor import Mending
from headway.policy.reconcile import Action

_SOON = timedelta(seconds=2)


def scheduled(name: str, message: str, now: datetime, due: datetime | None = None) -> State[Any]:
    """A state with which a worker may start the run, once it is *due* or else very soon."""
    state: State[Any] = State(type=StateType.SCHEDULED, name=name, message=message)
    details = StateDetails(scheduled_time=due or now + _SOON)
    return state.model_copy(update={"state_details": details})


def mended(mending: Mending, now: datetime) -> State[Any]:
    """What the janitor leaves to be written."""
    if mending.action is Action.RESCHEDULE:
        why = "its flow process is gone; another one takes it up"
        return scheduled("AwaitingRetry", why, now)
    if mending.action is Action.SET_RUNNING:
        return Running(message="its flow process goes on")
    ended = mending.exit
    message = ended.message if ended is not None else None
    if mending.action is Action.SET_CANCELLED or ended is None or ended.kind is ExitKind.CANCELLED:
        return Cancelled(message=message)
    return Completed(message=message) if ended.kind is ExitKind.OK else Failed(message=message)
