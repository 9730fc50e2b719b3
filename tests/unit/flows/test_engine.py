"""What a flow process runs, and what it leaves alone."""

from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from flows import engine

RUN = UUID(int=1)


@pytest.mark.parametrize("state", [*StateType, None])
def test_a_run_that_its_user_has_ended_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, state: StateType | None
) -> None:
    found = FlowRun(id=RUN, flow_id=UUID(int=2), state=None if state is None else State(type=state))
    begun = list[object]()
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(RUN))
    monkeypatch.setattr(engine, "load_flow_run", lambda _: found)
    monkeypatch.setattr(engine, "load_flow", lambda _: "its flow")
    monkeypatch.setattr(engine, "run_flow", lambda flow, flow_run: begun.append((flow, flow_run)))
    engine.main()
    over = {"CANCELLED", "CANCELLING", "COMPLETED", "FAILED", "CRASHED"}
    assert begun == ([] if state in over else [("its flow", found)])
