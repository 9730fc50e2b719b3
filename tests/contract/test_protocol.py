"""The real ledger does what the model of the lease protocol says, step by step."""

from collections.abc import Iterator

import pytest

from headway.errors import LeaseLost
from headway.ledger import Ledger
from headway.model.lease import Lease
from headway.model.run import Measurement, RunState
from tests.protocol.replay import replay_ways
from tests.support import ledger_faults
from tests.support.fence import fence_of

WAYS = 15


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(ledger_url)
    yield opened
    opened.close()


def test_the_ledger_follows_the_model(ledger: Ledger) -> None:
    """Some ways; `make faults` goes thousands."""
    assert sum(replay_ways(ledger, range(WAYS))) > 5 * WAYS


def test_who_knows_the_attempt_before_ends_nothing_of_the_next(ledger: Ledger) -> None:
    """A run that waits has no token: there the attempt alone keeps a late canceller out."""
    ledger_faults.prepare(ledger)
    ledger_faults.enqueue(ledger, "run")
    late = fence_of(ledger, "run")
    admitted = ledger.leases.admit(
        "run", ledger_faults.NODES[0], ledger_faults.DEMAND, reading=None, ttl_s=900.0
    )
    assert isinstance(admitted, Lease)
    ledger.runs.requeue(admitted.fence, ledger_faults.GONE)
    ledger.leases.release(admitted.fence)
    with pytest.raises(LeaseLost):
        ledger.runs.finish(late, ledger_faults.OK, Measurement())
    assert ledger.runs.get("run").state is RunState.WAITING


def test_who_gave_its_claim_back_ends_nothing(ledger: Ledger) -> None:
    ledger_faults.prepare(ledger)
    ledger_faults.enqueue(ledger, "run")
    admitted = ledger.leases.admit(
        "run", ledger_faults.NODES[0], ledger_faults.DEMAND, reading=None, ttl_s=900.0
    )
    assert isinstance(admitted, Lease)
    assert ledger.leases.give_back(admitted.fence)
    with pytest.raises(LeaseLost):
        ledger.runs.finish(admitted.fence, ledger_faults.OK, Measurement())
    assert ledger.runs.get("run").state is RunState.WAITING
