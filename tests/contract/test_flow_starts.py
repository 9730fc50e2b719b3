"""Counts of flow processes that were started for runs."""

import pytest

from headway.ledger import Ledger
from headway.model.lease import Demand
from headway.units import GIB
from tests.support.leading import admit_in_term
from tests.support.on_ledger import enqueue, join


@pytest.fixture(autouse=True)
def _has_two_runs(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    enqueue(ledger, "b")


def test_starts_are_counted_for_a_while(ledger: Ledger) -> None:
    assert [ledger.flow_starts.note("a", 3600.0, 180.0) for _ in range(3)] == [1, 2, 3]
    assert ledger.flow_starts.lately(["a", "b"], 3600.0) == {"a": 3}
    assert ledger.flow_starts.lately(["b"], 3600.0) == {}
    assert ledger.flow_starts.lately(["a"], -1.0) == {}
    assert ledger.flow_starts.note("a", -1.0, 180.0) == 1  # that count is over: the next one begins


def test_what_is_no_run_of_the_ledger_is_not_counted(ledger: Ledger) -> None:
    assert ledger.flow_starts.note("estimate", 3600.0, 180.0) == 0


def test_a_lease_waits_longer_for_a_flow_process_that_its_node_has_begun(ledger: Ledger) -> None:
    join(ledger, "here")
    for run_id in ("a", "b"):
        admit_in_term(ledger, run_id, "here", Demand(GIB), start_limit_s=30.0)
    ledger.flow_starts.note("a", 3600.0, 180.0)
    due = {each.run_id: each.start_by for each in ledger.leases.unstarted("here")}
    assert (due["a"] - due["b"]).total_seconds() == pytest.approx(150.0, abs=30.0)
    lease = ledger.leases.of_run("a")
    ledger.leases.take_up(lease.fence)
    ledger.flow_starts.note("a", 3600.0, 180.0)  # another flow process of it: taken up it stays
    assert ledger.leases.of_run("a").start_by is None
