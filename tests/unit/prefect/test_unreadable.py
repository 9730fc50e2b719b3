"""Which runs of a page the server cannot send, and that the others are found all the same."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput, SiteBroken
from headway.prefect.client import PrefectServer
from headway.prefect.unreadable import HISTORY, REASON, read_apart


@given(st.sets(st.integers(0, 199)), st.integers(1, 200))
def test_all_that_can_be_read_is_read_and_the_others_are_named(bad: set[int], size: int) -> None:
    ids = [str(at) for at in range(size)]
    poisoned = {str(at) for at in bad} & set(ids)
    asked = 0

    def read(part: Sequence[str]) -> list[str] | None:
        nonlocal asked
        asked += 1
        return None if poisoned & set(part) else list(part)

    readable, unreadable = read_apart(ids, read)
    assert readable == [each for each in ids if each not in poisoned]
    assert unreadable == [each for each in ids if each in poisoned]
    assert asked <= max(1, 2 * 8 * len(poisoned) + 1)  # 2⁸ > 200: a page is halved so often


def server(answer: Any) -> PrefectServer:
    made = PrefectServer("http://nowhere/api", auth=None)
    made._client = httpx.Client(
        base_url="http://nowhere/api", transport=httpx.MockTransport(answer)
    )
    return made


def prefect(poisoned: str, states_are_known: bool = True) -> Any:
    """A server of three runs that cannot send one of them."""
    runs = [{"id": each, "name": each, "state": {"name": "Completed"}} for each in "abc"]

    def answer(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        if request.url.path.endswith(HISTORY):
            known = [{"id": each["id"], "state_type": "SCHEDULED"} for each in runs]
            return httpx.Response(200 if states_are_known else 500, json=known)
        ids = ((asked.get("flow_runs") or {}).get("id") or {"any_": "abc"})["any_"]
        if poisoned in ids:
            return httpx.Response(500, json={"exception_message": "Internal Server Error"})
        return httpx.Response(200, json=[each for each in runs if each["id"] in ids])

    return answer


def test_a_list_of_runs_has_all_of_them_though_one_cannot_be_sent() -> None:
    found = server(prefect("b")).runs(3)
    assert [(run.run_id, run.state_name) for run in found] == [
        ("a", "Completed"),
        ("b", "Scheduled"),
        ("c", "Completed"),
    ]
    assert found[1].message == REASON


def test_a_server_that_fails_at_everything_is_not_taken_for_a_poisoned_run() -> None:
    with pytest.raises(SiteBroken, match="failed at a question"):
        server(prefect("b", states_are_known=False)).runs(3)


@pytest.mark.parametrize("value", ["\ud800", 2**70, float("nan")])
def test_what_the_server_could_not_send_again_is_not_sent_to_it(value: object) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise AssertionError("it was sent")

    with pytest.raises(InvalidInput):
        server(answer)._call("POST", "/deployments/1/create_flow_run", {"parameters": value})
