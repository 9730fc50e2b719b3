"""Counts of flow processes that were started for runs, on both databases."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from headway.ledger import Ledger


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(ledger_url)
    for run_id in ("a", "b"):
        opened.runs.enqueue(
            run_id, {"name": "x"}, name=run_id, owner="me", team="t", pool="gpu", priority=0,
            submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip
    yield opened
    opened.close()


def test_starts_are_counted_for_a_while(ledger: Ledger) -> None:
    assert [ledger.flow_starts.note("a", 3600.0) for _ in range(3)] == [1, 2, 3]
    assert ledger.flow_starts.lately(["a", "b"], 3600.0) == {"a": 3}
    assert ledger.flow_starts.lately(["b"], 3600.0) == {}
    assert ledger.flow_starts.lately(["a"], -1.0) == {}
    assert ledger.flow_starts.note("a", -1.0) == 1  # that count is over: the next one begins


def test_what_is_no_run_of_the_ledger_is_not_counted(ledger: Ledger) -> None:
    assert ledger.flow_starts.note("estimate", 3600.0) == 0
