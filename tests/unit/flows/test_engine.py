"""What a flow process runs, and what it leaves alone."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.context import FlowRunContext
from prefect.events import related

from flows import engine

RUN = UUID(int=1)
FLOW = SimpleNamespace(name="train")


@pytest.mark.parametrize("state", [*StateType, None])
def test_a_run_that_its_user_has_ended_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, state: StateType | None
) -> None:
    found = FlowRun(id=RUN, flow_id=UUID(int=2), state=None if state is None else State(type=state))
    begun = list[object]()
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(RUN))
    monkeypatch.setattr(engine, "load_flow_run", lambda _: found)
    monkeypatch.setattr(engine, "load_flow", lambda _: FLOW)
    monkeypatch.setattr(engine, "run_flow", lambda flow, flow_run: begun.append((flow, flow_run)))
    engine.main()
    over = {"CANCELLED", "CANCELLING", "COMPLETED", "FAILED"}
    assert begun == ([] if state in over else [(FLOW, found)])


def test_events_of_a_run_name_its_flow_pool_and_queue_for_which_nobody_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"work_pool_name": "gpu", "work_queue_name": "node-a"}
    ids = {"work_pool_id": UUID(int=3), "work_queue_id": UUID(int=4)}
    found = FlowRun(id=RUN, flow_id=UUID(int=2), name="run", **names, **ids)
    cache: dict[str, Any] = {}
    monkeypatch.setattr(related, "RESOURCE_CACHE", cache)
    monkeypatch.setattr(engine, "RESOURCE_CACHE", cache)
    monkeypatch.setattr(FlowRunContext, "get", lambda: SimpleNamespace(flow_run=found))
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(RUN))
    monkeypatch.setattr(engine, "load_flow_run", lambda _: found)
    monkeypatch.setattr(engine, "load_flow", lambda _: FLOW)
    monkeypatch.setattr(engine, "run_flow", lambda _, flow_run: None)
    engine.main()
    # It would call one of these.
    client: Any = SimpleNamespace(read_flow=None, read_work_pool=None, read_work_queue=None)
    told = asyncio.run(related.related_resources_from_run_context(client))
    said = {each.id: each.name for each in told}
    assert (
        said.items()
        >= {
            f"prefect.flow.{UUID(int=2)}": "train",
            f"prefect.work-pool.{UUID(int=3)}": "gpu",
            f"prefect.work-queue.{UUID(int=4)}": "node-a",
        }.items()
    )
