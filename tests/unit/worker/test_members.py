"""Members of arrays become runs, whatever Prefect says of one of the arrays."""

from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from headway.worker.members import call_members

WRONG = httpx.Response(422, request=httpx.Request("POST", "http://nowhere"), json={})
REFUSALS = [
    ObjectNotFound(Exception("no such queue")),
    PrefectHTTPStatusError("too large", request=WRONG.request, response=WRONG),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_an_array_that_prefect_does_not_take_holds_no_other_up(refusal: Exception) -> None:
    job = {"name": "sweep", "command": ["train"]}
    due = [
        SimpleNamespace(
            array_id=str(at), name="sweep", team="vision", queue="default", created=0,
            job=job, parameters={"parameters": [["seed", [1, 2]]]}, at_most=None,
        )
        for at in (1, 2)
    ]  # fmt: skip
    joined: list[tuple[Any, ...]] = []
    arrays = SimpleNamespace(due=lambda _: due, join=lambda *told: joined.append(told))
    site: Any = SimpleNamespace(
        ledger=SimpleNamespace(arrays=arrays), settings=SimpleNamespace(pool="gpu")
    )

    class Pool:
        async def make_run(self, *_: Any, key: str, **__: Any) -> str:
            if ":1:" in key:
                raise refusal
            return "run"

    pool: Any = Pool()
    assert anyio.run(call_members, site, pool) == 1
    assert joined == [("2", 1, "run")]
