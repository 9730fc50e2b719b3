"""What Prefect tells of runs the moment it happens, before anybody asks."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import anyio
from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.logging import get_logger

log = get_logger("worker.gpu-node")

LISTEN_AGAIN_S = 5.0
_RUN = "prefect.flow-run."
_ASKED = frozenset(
    f"{_RUN}{state}"
    for state in (
        *("Cancelled", "Cancelling", "Suspended", "Paused", "Resuming", "AwaitingRetry"),
        *("Failed", "Crashed"),
    )
)
"""What happens to a run when its user cancels, suspends, resumes or retries it, or when somebody
else than its flow calls it ended."""
_COMPLETED = f"{_RUN}Completed"
"""Mostly said by the flow itself: not worth a round of the janitor at once."""


class RunEvent(NamedTuple):
    """A run has a new state."""

    run_id: str
    asked: bool
    """Its user may have asked something of it, or it was said to end; else it was scheduled."""
    urgent: bool
    """The same, and the janitor is to look at once."""
    queue: str
    """Its work queue; empty where it has none."""


async def events() -> AsyncIterator[RunEvent]:
    """Those of all runs, until the server is away: polling goes on meanwhile."""
    wanted = EventFilter(event=EventNameFilter(name=[f"{_RUN}Scheduled", _COMPLETED, *_ASKED]))
    try:
        async with get_events_subscriber(filter=wanted) as told:
            async for event in told:
                run_id = event.resource.id.removeprefix(_RUN)
                urgent = event.event in _ASKED
                queues = event.resource_in_role
                queue = queues["work-queue"].name if "work-queue" in queues else ""
                yield RunEvent(run_id, urgent or event.event == _COMPLETED, urgent, queue or "")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
        log.info("no events from Prefect (%s): polling instead", error)
        await anyio.sleep(LISTEN_AGAIN_S)
