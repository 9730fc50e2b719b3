"""What a flow process runs: Prefect's engine, for a run that nobody has ended meanwhile."""

import os
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from prefect.client.schemas.objects import FlowRun
from prefect.engine import handle_engine_signals
from prefect.events.related import RESOURCE_CACHE
from prefect.flow_engine import load_flow, load_flow_run, run_flow


def main() -> None:
    """Run the flow of the run that the environment names; not one that was cancelled or ended.

    Prefect's server would let the engine take it from there to running.
    """
    run_id = UUID(os.environ["PREFECT__FLOW_RUN_ID"])
    with handle_engine_signals(run_id):
        found = load_flow_run(run_id)
        if not _is_over(found):
            flow = load_flow(found)
            _tell_what_it_is_of(found, flow.name)
            run_flow(flow, flow_run=found)


class Named(NamedTuple):
    """What an event says of a flow, a pool or a queue."""

    id: UUID | None
    name: str | None


def _tell_what_it_is_of(run: FlowRun, flow: str) -> None:
    """Spare Prefect three questions about what is known here: the run's events name each."""
    own = Named(run.flow_id, flow)
    pool = Named(run.work_pool_id, run.work_pool_name)
    queue = Named(run.work_queue_id, run.work_queue_name)
    cache: dict[str, Any] = RESOURCE_CACHE  # of anything that is named
    known = (("flow", own.id, own), ("work-pool", pool.name, pool), ("work-queue", queue.id, queue))
    for kind, key, of in known:
        if of.id is not None and of.name is not None:
            cache[f"{kind}.{key}"] = ({"kind": kind, "object": of}, datetime.now(UTC))


def _is_over(run: FlowRun) -> bool:
    """Whether somebody has ended it; that an earlier process of it crashed ends nothing."""
    state = run.state
    if state is None or state.is_crashed():
        return False
    return state.is_final() or state.is_cancelling()


if __name__ == "__main__":
    main()
