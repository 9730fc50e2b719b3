"""Runs as they are listed: the ledger says which there are, Prefect in which state each is."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.errors import SiteUnreachable
from headway.gateway.runs import Filter, list_runs
from headway.ledger import Ledger
from headway.model.access import Caller, Scope
from headway.model.array import Array
from headway.model.run import Exit, ExitKind, Measurement
from headway.prefect.listed_run import ListedRun
from tests.support.on_ledger import enqueue

AT = datetime(2026, 1, 1, tzinfo=UTC)
OPERATOR = Caller("root", "operators", frozenset({Scope.OPERATE}))
ADA = Caller("ada", "vision", frozenset({Scope.WATCH}))
JOB = {"name": "digits", "image": "i", "command": ["train"]}
ANY = Filter()


class Prefect:
    """One that has nothing but the runs *has*; none of them where it is *away*."""

    def __init__(self, *has: ListedRun, away: bool = False) -> None:
        self._has, self._away = has, away

    def runs(self, limit: int) -> list[ListedRun]:
        if self._away:
            raise SiteUnreachable("http://nowhere/api", "ConnectError")
        return list(self._has)[:limit]

    def these(self, run_ids: Sequence[str]) -> dict[str, ListedRun]:
        return {each.run_id: each for each in self.runs(10_000) if each.run_id in run_ids}


def add(ledger: Ledger, run_id: str, minute: int = 0, **given: Any) -> None:
    values = {"name": "digits", "owner": "ada", "team": "vision", **given}
    enqueue(ledger, run_id, JOB, submitted_at=AT + timedelta(minutes=minute), **values)


def seen(run_id: str, state: str, minute: int = 0) -> ListedRun:
    created_at = (AT + timedelta(minutes=minute)).isoformat()
    return ListedRun(run_id, "digits", state.upper(), state, "", created_at, {})


def listed(
    ledger: Ledger, prefect: Prefect, wanted: Filter = ANY, *, caller: Caller = OPERATOR,
    limit: int = 100,
) -> list[tuple[str, str]]:  # fmt: skip
    site = cast("Any", SimpleNamespace(ledger=ledger))
    found = list_runs(site, cast("Any", prefect), caller, wanted, limit)
    return [(run.run_id, run.state_name) for run, _ in found]


@pytest.mark.parametrize("prefect", [Prefect(), Prefect(away=True)])
def test_runs_that_prefect_does_not_have_are_listed(ledger: Ledger, prefect: Prefect) -> None:
    add(ledger, "r1")
    assert listed(ledger, prefect) == [("r1", "AwaitingHeadroom")]
    assert listed(ledger, prefect, caller=ADA) == [("r1", "AwaitingHeadroom")]


def test_an_operator_sees_what_no_worker_has_seen_and_nothing_twice(ledger: Ledger) -> None:
    add(ledger, "r1", minute=1)
    add(ledger, "r3", minute=3)
    there = Prefect(seen("r3", "Running", 3), seen("r2", "Scheduled", 2), seen("r1", "Pending", 1))
    newest_first = [("r3", "Running"), ("r2", "Scheduled"), ("r1", "Pending")]
    assert listed(ledger, there) == newest_first
    assert listed(ledger, there, limit=2) == newest_first[:2]
    assert listed(ledger, there, caller=ADA) == [newest_first[0], newest_first[2]]
    wanted = Filter(states=frozenset({"scheduled", "pending"}), since=AT + timedelta(minutes=2))
    assert listed(ledger, there, wanted) == [("r2", "Scheduled")]


def test_pages_have_every_run_once_while_others_come_and_go(ledger: Ledger) -> None:
    """Many have one time of submission, as members of an array may."""
    for number in range(20):
        add(ledger, f"r{number:02}", minute=number // 10)
    found: list[str] = []
    last = None
    while page := ledger.runs.listed(3, after=last):
        found += [each.run_id for each in page]
        last = page[-1]
        add(ledger, f"new{len(found):02}", minute=99)
    assert found == sorted((f"r{number:02}" for number in range(20)), reverse=True)


def test_states_are_looked_for_among_all_runs_of_which_that_may_be_so(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.gateway.runs._PAGE", 2)
    for number in range(7):
        add(ledger, f"r{number}", minute=number)
    for number, kind in ((0, ExitKind.FAILED), (1, ExitKind.OK), (2, ExitKind.TIMED_OUT)):
        run = ledger.runs.get(f"r{number}")
        ledger.runs.finish(run.unleased, Exit(kind, 1, "over"), Measurement())
        ledger.runs.told(f"r{number}", 1)
    there = Prefect(seen("r0", "Failed"), *(seen(f"r{number}", "Late") for number in (3, 4, 6)))
    late = Filter(states=frozenset({"late"}))
    assert listed(ledger, there, late) == [("r6", "Late"), ("r4", "Late"), ("r3", "Late")]
    assert listed(ledger, there, late, limit=1) == [("r6", "Late")]
    assert listed(ledger, there, replace(late, states=frozenset({"failed"}))) == [("r0", "Failed")]
    over = Filter(states=frozenset({"completed", "timedout"}))
    assert listed(ledger, there, over) == [("r2", "TimedOut"), ("r1", "Completed")]


def test_a_filter_looks_behind_the_newest(ledger: Ledger) -> None:
    for number in range(5):
        add(ledger, f"r{number}", minute=number, name="50%_done" if number == 0 else "digits")
        ledger.arrays.add(
            JOB, Array({"seed": (1,)}), name="old" if number == 0 else "sweep", owner="ada",
            team="vision", pool="gpu", queue="", key=None,
            submitted_at=AT + timedelta(minutes=number),
        )  # fmt: skip
    assert [run_id for run_id, _ in listed(ledger, Prefect(), Filter("%_DONE"), limit=1)] == ["r0"]
    assert listed(ledger, Prefect(), Filter(owner="bob")) == []
    assert [each.name for each in ledger.arrays.listed(1, name="OL")] == ["old"]
    newest = ledger.arrays.listed(9, team="vision", since=AT + timedelta(minutes=3))
    assert [each.submitted_at.minute for each in newest] == [4, 3]
    assert ledger.arrays.listed(9, owner="bob") == []
