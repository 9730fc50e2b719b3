"""What Prefect tells of runs the moment it happens, before anybody asks."""

from collections.abc import AsyncGenerator

import anyio
from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.logging import get_logger

from headway.model.prefect_view import News, RunNews

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
_NEWS = {
    f"{_RUN}Scheduled": News.SCHEDULED,
    **dict.fromkeys(_ASKED, News.ASKED),
}


async def events() -> AsyncGenerator[RunNews]:
    """Those of all runs, until the server is away: polling goes on meanwhile."""
    wanted = EventFilter(event=EventNameFilter(name=list(_NEWS)))
    try:
        async with get_events_subscriber(filter=wanted) as told:
            async for event in told:
                run_id = event.resource.id.removeprefix(_RUN)
                queues = event.resource_in_role
                queue = queues["work-queue"].name if "work-queue" in queues else ""
                yield RunNews(run_id, _NEWS[event.event], queue or "")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
        log.info("no events from Prefect (%s): polling instead", error)
        await anyio.sleep(LISTEN_AGAIN_S)
