"""A long queue is taken in by parts, and none of it is left out."""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from headway.leader import backlog as backlog_module
from headway.leader.backlog import Backlog

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def name(number: int) -> str:
    return str(UUID(int=number))


class Pool:
    """Prefect's runs that wait, numbered from the oldest on."""

    def __init__(self, runs: int) -> None:
        self.waiting = {
            name(at): SimpleNamespace(
                id=UUID(int=at), expected_start_time=NOON + timedelta(seconds=at), created=None
            )
            for at in range(runs)
        }
        self.asked_again: list[str] = []

    async def new_runs(
        self,
        known: Collection[str],
        _: Any,
        *,
        first_page: int,
    ) -> list[Any]:
        assert first_page
        return [run for run_id, run in self.waiting.items() if run_id not in known][::-1]

    async def scheduled(self, run_ids: Collection[str]) -> dict[str, Any]:
        self.asked_again += run_ids
        return {each: self.waiting[each] for each in run_ids if each in self.waiting}


def part_of(backlog: Backlog, known: Collection[str] = ()) -> Any:
    part = asyncio.run(backlog.part(known, NOON, first_page=10))
    return part, [str(run.id) for run in part]


def test_the_oldest_come_first_and_nobody_is_left_out(monkeypatch) -> None:
    monkeypatch.setattr(backlog_module, "PART", 3)
    pool, known = Pool(7), []
    backlog = Backlog(cast("Any", pool))
    for wanted in ([0, 1, 2], [3, 4, 5], [6]):
        part, ids = part_of(backlog, known)
        assert ids == [name(at) for at in wanted]
        backlog.taken_in(part)
        known += ids
        assert bool(backlog) == (len(known) < 7)
    assert part_of(backlog, known) == ([], [])


def test_what_was_not_taken_in_comes_again(monkeypatch) -> None:
    """The ledger was away, say: nothing may be known that is not in it."""
    monkeypatch.setattr(backlog_module, "PART", 3)
    backlog = Backlog(cast("Any", Pool(4)))
    assert part_of(backlog) == part_of(backlog)


def test_what_was_cancelled_meanwhile_is_not_taken_in(monkeypatch) -> None:
    monkeypatch.setattr(backlog_module, "PART", 2)
    pool = Pool(4)
    backlog = Backlog(cast("Any", pool))
    part, ids = part_of(backlog)
    backlog.taken_in(part)
    del pool.waiting[name(3)]
    _, after = part_of(backlog, ids)
    assert after == [name(2)]
    assert sorted(pool.asked_again) == [name(2), name(3)]
