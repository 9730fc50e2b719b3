"""States of runs in Prefect that the worker and the flows set."""

from datetime import datetime, timedelta
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed, Running, Scheduled

from headway.model.run import Exit, ExitKind
from headway.node.janitor import Mending
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


def mended(mending: Mending, now: datetime) -> State[Any]:
    """What the janitor leaves to be written."""
    if mending.action is Action.RESCHEDULE:
        why = "its flow process is gone; another one takes it up"
        return scheduled("AwaitingRetry", why, now)
    if mending.action is Action.SET_RUNNING:
        return Running(message="its flow process goes on")
    if mending.exit is None:
        return Cancelled()
    if mending.action is Action.SET_CANCELLED:
        return Cancelled(message=mending.exit.message)
    return ended(mending.exit)
