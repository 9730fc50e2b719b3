"""What the task `train` submits, and by which key."""

from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import TaskRun

from headway import tasks
from headway.errors import InvalidInput
from headway.tasks import _key, _refuse_owner

FLOW_RUN = uuid4()


def started(flow_run: UUID | None = FLOW_RUN, count: int = 1) -> TaskRun:
    run = TaskRun(flow_run_id=flow_run, task_key="train", dynamic_key="0")
    return run.model_copy(update={"id": uuid4(), "flow_run_run_count": count})


def test_each_start_of_a_flow_run_gives_its_jobs_the_same_keys() -> None:
    """Prefect gives the task runs of a retry other ids."""
    first = [_key(started(), job) for job in ({"a": 1}, {"a": 2}, {"a": 1})]
    again = [_key(started(count=2), job) for job in ({"a": 1}, {"a": 1}, {"a": 2})]
    assert len(set(first)) == 3
    assert set(again) == set(first)


def test_flow_runs_that_have_ended_are_forgotten_and_others_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, flows = set(), [uuid4() for _ in range(200)]
    monkeypatch.setattr(tasks, "_submitted", {})
    monkeypatch.setattr(tasks, "_flow_has", lambda _, flow_run_id: flow_run_id in ended)
    lasting = started(flows[0])
    first = _key(lasting, {"a": 1})
    for each in flows[1:]:
        _key(started(each), {"a": 1})
        ended.add(each)
    assert len(tasks._submitted) <= tasks._MOST_FLOW_RUNS + 2
    assert flows[0] in tasks._submitted
    assert _key(lasting, {"a": 1}) == first
    assert _key(started(flows[0]), {"a": 1}) != first


def test_a_retry_of_the_task_alone_has_its_key() -> None:
    mine, other = started(count=7), started(count=7)
    assert _key(mine, {"a": 1}) == _key(mine, {"a": 1}) != _key(other, {"a": 1})


def test_other_flow_runs_have_other_keys() -> None:
    assert _key(started(uuid4()), {"a": 1}) != _key(started(uuid4()), {"a": 1})
    assert _key(started(None), {"a": 1}) != _key(started(None), {"a": 1})


@pytest.mark.parametrize("field", ["owner", "team"])
def test_a_flow_cannot_say_whose_a_run_is(field: str) -> None:
    """Its process may have an operator's token, which could submit it as anybody's."""
    with pytest.raises(InvalidInput, match="it comes from the token"):
        _refuse_owner({"name": "a", field: "ada"})
    _refuse_owner({"name": "a", "owner": "", "team": "default"})
