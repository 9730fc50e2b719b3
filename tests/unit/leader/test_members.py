"""Members of arrays become runs once, wherever a worker is killed, and however many ask."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import anyio
import httpx
import pytest
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from headway.errors import LedgerUnreachable
from headway.leader.members import call_members
from headway.ledger.records import ArrayRecord
from headway.model.array import Array
from headway.site import Site
from headway.worker.pool import PrefectPool
from tests.support.api import site_in

JOB = {"name": "sweep", "image": "trainer:1", "command": ["train", "{lr}"]}


class FakePool:
    """Gives one run for one key, as Prefect does."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        self.parameters: dict[str, dict[str, Any]] = {}

    async def make_run(
        self, parameters: dict[str, Any], *, name: str, tags: list[str], key: str, queue: str
    ) -> str:
        """The run of *key*."""
        assert (tags, queue) == (["team:vision"], "default")
        self.parameters.setdefault(name, parameters)
        return self.runs.setdefault(key, str(uuid4()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = site_in(tmp_path)
    yield made
    made.ledger.close()


@pytest.fixture
def array(site: Site) -> ArrayRecord:
    return site.ledger.arrays.add(
        JOB, Array({"lr": (0.1, 0.2)}), name="sweep", owner="ada", team="vision",
        pool=site.settings.pool, queue="default", key=None, submitted_at=site.ledger.now(),
    )  # fmt: skip


def call(site: Site, pool: FakePool) -> int:
    return anyio.run(call_members, site, cast("PrefectPool", pool))


def members(site: Site, array: ArrayRecord) -> list[tuple[int | None, str]]:
    return [(run.array_index, run.run_id) for run in site.ledger.arrays.members(array.array_id)]


def test_one_member_waits_at_a_time(site: Site, array: ArrayRecord) -> None:
    pool = FakePool()
    assert [call(site, pool) for _ in range(3)] == [1, 0, 0]
    ((index, run_id),) = members(site, array)
    assert index == 1
    assert list(pool.runs.values()) == [run_id]
    assert pool.parameters["sweep-1"]["job"]["command"] == ["train", "0.1"]


def test_a_worker_killed_in_between_loses_and_doubles_no_member(
    site: Site, array: ArrayRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FakePool()
    with monkeypatch.context() as killed:

        def never(*_: object) -> None:
            raise LedgerUnreachable("the ledger", "the worker is dead")

        killed.setattr(site.ledger.arrays, "join", never)
        with pytest.raises(LedgerUnreachable):
            call(site, pool)
    assert members(site, array) == []
    assert call(site, pool) == 1  # the next worker
    assert members(site, array) == [(1, *pool.runs.values())]


def test_two_workers_that_ask_at_once_get_one_member(site: Site, array: ArrayRecord) -> None:
    pool = FakePool()
    due = site.ledger.arrays.due
    stale = due(site.settings.pool)
    call(site, pool)
    site.ledger.arrays.due = lambda _pool, _ahead: stale  # type: ignore[method-assign]  # read before that
    call(site, pool)
    assert members(site, array) == [(1, *pool.runs.values())]
    assert site.ledger.arrays.get(array.array_id).created == 1


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
            array_id=str(at), name="sweep", team="vision", queue="default", created=0, size=2,
            job=job, parameters={"parameters": [["seed", [1, 2]]]}, at_most=None,
        )
        for at in (1, 2)
    ]  # fmt: skip
    joined: list[tuple[Any, ...]] = []
    arrays = SimpleNamespace(due=lambda _pool, _ahead: due, join=lambda *told: joined.append(told))
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
