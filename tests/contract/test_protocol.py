"""The real ledger does what the model of the lease protocol says, step by step."""

import pytest

from headway.errors import LeaseLost
from headway.ledger import Ledger
from headway.model.run import Measurement, RunState
from tests.protocol.replay import replay_ways
from tests.protocol.replay_elections import replay_elections
from tests.support.fence import fence_of
from tests.support.ledger_faults import GONE, OK
from tests.support.on_ledger import enqueue, granted, join

WAYS = 15


def test_the_ledger_follows_the_model(ledger: Ledger) -> None:
    """Some ways; `make faults` goes thousands."""
    assert sum(replay_ways(ledger, range(WAYS))) > 5 * WAYS


def test_the_ledger_follows_the_model_of_elections(ledger: Ledger) -> None:
    """Leaders that are killed, deposed or stopped in a pass; grants that nobody takes up."""
    done = set[str]().union(*replay_elections(ledger, range(WAYS)))
    assert done >= {
        "leads", "goes on", "stands by", "is killed", "grants", "is refused", "gives back",
        "finds it changed", "takes up", "finds it lost", "refuses", "ends",
    }  # fmt: skip


def test_who_knows_the_attempt_before_ends_nothing_of_the_next(ledger: Ledger) -> None:
    """A run that waits has no token: there the attempt alone keeps a late canceller out."""
    join(ledger)
    enqueue(ledger, "run")
    late = fence_of(ledger, "run")
    admitted = granted(ledger, "run")
    ledger.runs.requeue(admitted.fence, GONE)
    ledger.leases.release(admitted.fence)
    with pytest.raises(LeaseLost):
        ledger.runs.finish(late, OK, Measurement())
    assert ledger.runs.get("run").state is RunState.WAITING


def test_who_gave_its_claim_back_ends_nothing(ledger: Ledger) -> None:
    join(ledger)
    enqueue(ledger, "run")
    admitted = granted(ledger, "run")
    assert ledger.leases.give_back(admitted.fence)
    with pytest.raises(LeaseLost):
        ledger.runs.finish(admitted.fence, OK, Measurement())
    assert ledger.runs.get("run").state is RunState.WAITING
