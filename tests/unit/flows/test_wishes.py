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
    written: list[tuple[UUID, State[Any], bool]] = []

    def write(run_id: UUID, state: State[Any], *, force: bool) -> None:
        written.append((run_id, state, force))

    client = SimpleNamespace(read_flow_run_states=lambda _: states, set_flow_run_state=write)
    monkeypatch.setattr(wishes, "get_client", lambda *, sync_client: nullcontext(client))
    wishes.keep_wish(RUN)
    assert all(each == (UUID(RUN), states[-2], True) for each in written)
    return [state for _, state, _ in written]


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


def test_whatever_prefect_answers_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: UUID) -> list[State[Any]]:
        raise ValueError("no JSON")

    client = SimpleNamespace(read_flow_run_states=answer)
    monkeypatch.setattr(wishes, "get_client", lambda *, sync_client: nullcontext(client))
    wishes.keep_wish(RUN)
