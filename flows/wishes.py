"""What somebody asks for in the moment in which a flow process begins."""

import logging
from itertools import pairwise
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType

log = logging.getLogger(__name__)

_WISHES = frozenset(
    {
        StateType.PAUSED,
        StateType.CANCELLING,
        StateType.CANCELLED,
        StateType.FAILED,
        StateType.COMPLETED,
    }
)


def keep_wish(run_id: str) -> None:
    """Say again what Prefect's engine has just written Running over.

    The server lets it: a suspension, a cancel or an end that somebody has set since the scheduler
    looked would be lost. The scheduler does what follows of it; this process goes on until then.
    """
    try:
        with get_client(sync_client=True) as client:
            states = client.read_flow_run_states(UUID(run_id))
            if (wish := _overwritten(states)) is not None:
                log.warning("run %s: %s was written over by its start", run_id, wish.name)
                client.set_flow_run_state(UUID(run_id), wish, force=True)
    except Exception as error:  # noqa: BLE001 - whatever Prefect answers, the run goes on
        log.warning("run %s: whether its start wrote over a wish is not known: %s", run_id, error)


def _overwritten(states: list[State[Any]]) -> State[Any] | None:
    """What the last of *states*, the oldest first, was written over, if that is a wish."""
    for before, last in list(pairwise(states))[-1:]:
        if last.is_running() and before.type in _WISHES:
            return before
    return None
