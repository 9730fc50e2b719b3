"""Fences: what an attempt writes is refused once another one has its run.

A frozen flow process, or one on a node that was taken out of the site, wakes
up and goes on where it was. What it knows of its attempt is compared with the
ledger in the transaction that writes, so that it can change nothing of the
attempt that has taken its place.
"""

from sqlmodel import Session

from headway.errors import LeaseLost
from headway.ledger.lease_rows import live_lease, number
from headway.ledger.run_rows import run_row
from headway.ledger.tables import LeaseRow, RunRow
from headway.model.lease import Fence


def fenced(session: Session, fence: Fence) -> tuple[RunRow, LeaseRow | None]:
    """The run, locked, and its own live lease, where they are *fence*'s now.

    Raises:
        LeaseLost: Another attempt or another lease has the run.
    """
    run = run_row(session, fence.run_id, lock=True)
    lease = live_lease(session, fence.run_id)
    if run.attempt != fence.attempt:
        raise LeaseLost(number(lease) if lease else 0, fence.run_id, _over(run, fence))
    _compare(lease, fence)
    return run, lease


def leased(session: Session, fence: Fence) -> LeaseRow:
    """The live lease of *fence*; the run may have ended, or wait for its next attempt.

    Raises:
        LeaseLost: It is released, or another token holds it.
    """
    run_row(session, fence.run_id, lock=True)
    lease = live_lease(session, fence.run_id)
    _compare(lease, fence)
    if lease is None:
        raise LeaseLost(0, fence.run_id, "it holds none")
    return lease


def _compare(lease: LeaseRow | None, fence: Fence) -> None:
    if lease is None and fence.token:
        raise LeaseLost(0, fence.run_id, "it was released")
    if lease is not None and (lease.attempt, lease.token) != (fence.attempt, fence.token):
        raise LeaseLost(number(lease), fence.run_id, f"attempt {lease.attempt} holds another one")


def _over(run: RunRow, fence: Fence) -> str:
    return f"attempt {fence.attempt} is over, the run is at attempt {run.attempt}"
