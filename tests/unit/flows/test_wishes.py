"""What is asked for while a flow process begins is not lost, and nothing else is said again."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect.client.schemas.objects import State, StateType

from flows import wishes

RUN = str(UUID(int=1))
WISHES = {"PAUSED", "CANCELLING", "CANCELLED", "FAILED", "COMPLETED"}


def said_again(monkeypatch: pytest.MonkeyPatch, *types: StateType) -> list[State[Any]]:
    states = [State[Any](type=each) for each in types]
    written: list[State[Any]] = []

    def write(run_id: UUID, state: State[Any], *, force: bool) -> None:
        assert (str(run_id), force) == (RUN, True)
        assert state is states[-2]
        written.append(state)

    client = SimpleNamespace(read_flow_run_states=lambda _: states, set_flow_run_state=write)
    monkeypatch.setattr(wishes, "get_client", lambda *, sync_client: nullcontext(client))
    wishes.keep_wish(RUN)
    return written


@pytest.mark.parametrize("before", list(StateType))
def test_a_wish_that_running_was_written_over_is_said_again(
    monkeypatch: pytest.MonkeyPatch, before: StateType
) -> None:
    states = StateType.SCHEDULED, StateType.PENDING, before, StateType.RUNNING
    found = [each.type.value for each in said_again(monkeypatch, *states)]
    assert found == ([before.value] if before in WISHES else [])


def test_what_was_asked_for_and_taken_back_or_is_there_still_is_not_said_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused, running = StateType.PAUSED, StateType.RUNNING
    assert not said_again(monkeypatch, paused, StateType.SCHEDULED, running)
    assert not said_again(monkeypatch, StateType.PENDING, running, paused)
    assert not said_again(monkeypatch, running)
