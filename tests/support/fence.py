"""The fence of whoever has a run at this moment."""

from headway.ledger import Ledger
from headway.model.lease import Fence


def fence_of(ledger: Ledger, run_id: str) -> Fence:
    """The right to write for the run's attempt, as its owner has it now."""
    return ledger.runs.get(run_id).fence(ledger.leases.of_run(run_id))


def release(ledger: Ledger, run_id: str) -> None:
    """Release what the run holds, be it of the attempt before."""
    lease = ledger.leases.of_run(run_id)
    assert lease is not None, f"run {run_id} holds no lease"
    ledger.leases.release(lease.fence)
