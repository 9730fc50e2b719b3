"""Fences: what an attempt writes is refused once another one has its run.

A frozen flow process, or one on a node that was taken out of the site, wakes
up and goes on where it was. What it knows of its attempt is compared with the
ledger in the transaction that writes, so that it can change nothing of the
attempt that has taken its place.
"""

from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import LeaseLost
from headway.ledger.lease_rows import LIVE
from headway.ledger.run_rows import run_row
from headway.ledger.tables import LeaseRow, RunRow
from headway.model.lease import Fence
from headway.model.run import RunState


def fenced(
    session: Session, fence: Fence, locked: RunRow | None = None
) -> tuple[RunRow, LeaseRow | None]:
    """The run and the live lease of its attempt, both locked, where they are *fence*'s now.

    A run that waits may still have the lease of the attempt before, whose
    container is being removed: it is none of this attempt.

    Args:
        session: Of a transaction.
        fence: Of the attempt.
        locked: The run's row, where this transaction has locked it already.

    Raises:
        LeaseLost: Another attempt or another lease has the run, or it has ended: whoever ended
            it has closed what its flow kept of it.
    """
    run = locked or run_row(session, fence.run_id, lock=True)
    if run.attempt != fence.attempt:
        raise _lost(fence, f"the run is at attempt {run.attempt}")
    if run.state is RunState.ENDED:
        raise _lost(fence, "the run has ended")
    return run, _compared(session, fence)


def fenced_lease(session: Session, fence: Fence) -> tuple[RunRow, LeaseRow]:
    """As `fenced`, of an attempt that has to hold something.

    Raises:
        LeaseLost: As there; or it holds nothing.
    """
    run, lease = fenced(session, fence)
    if lease is None:
        raise _lost(fence, "it has none")
    return run, lease


def leased(session: Session, fence: Fence) -> LeaseRow:
    """The live lease of *fence*, locked; its run may have ended, or wait for its next attempt.

    Raises:
        LeaseLost: It is released, or another one was granted since.
    """
    run_row(session, fence.run_id, lock=True)
    lease = _compared(session, fence)
    if lease is None:
        raise _lost(fence, "it has none")
    return lease


def may_step(fence: Fence) -> ColumnElement[bool]:
    """Whether *fence*'s attempt may write about its steps, which go on when its lease is released.

    A part of a statement: true unless another lease was granted for the attempt since.
    """
    if not fence.token:
        return ~select(LeaseRow.token).where(LIVE, *_of_attempt(fence)).exists()
    return _newest_token(fence).scalar_subquery() == fence.token


def has_run(fence: Fence) -> ColumnElement[bool]:
    """What `fenced` compares, as a part of a statement."""
    own = col(RunRow.run_id) == fence.run_id, col(RunRow.attempt) == fence.attempt
    goes_on = select(RunRow.run_id).where(*own, RunRow.state != RunState.ENDED).exists()
    live = select(LeaseRow.token).where(LIVE, *_of_attempt(fence)).scalar_subquery()
    return goes_on & (func.coalesce(live, "") == fence.token)


def step_lost(fence: Fence) -> LeaseLost:
    """What is raised where `may_step` does not hold."""
    return _lost(fence, "it was granted again since")


def held_last(session: Session, fence: Fence) -> bool:
    """Whether nobody has held *fence*'s attempt since, be its lease released or not."""
    newest = session.exec(_newest_token(fence)).first()
    return (newest or "") == fence.token


def ended_before(session: Session, run: RunRow, fence: Fence) -> bool:
    """Whether *fence*'s attempt was the run's last one: how that ended, it may be told.

    Raises:
        LeaseLost: The run has ended, but with another attempt, or under another lease.
    """
    if run.state is not RunState.ENDED:
        return False
    own = not fence.token or held_last(session, fence)
    if run.attempt != fence.attempt or not own:
        raise _lost(fence, f"the run has ended with attempt {run.attempt}")
    return True


def requeued_before(session: Session, run: RunRow, fence: Fence) -> bool:
    """Whether the run waits since *fence*'s attempt was put back to the queue."""
    next_waits = run.state is RunState.WAITING and run.attempt == fence.attempt + 1
    return next_waits and held_last(session, fence)


def given_back_before(session: Session, run: RunRow, fence: Fence) -> bool:
    """Whether the run waits since *fence*'s claim was given back.

    It waits as the next attempt where a part of its gang had begun.
    """
    waits = run.state is RunState.WAITING and run.attempt in {fence.attempt, fence.attempt + 1}
    return waits and held_last(session, fence)


def _of_attempt(fence: Fence) -> tuple[ColumnElement[bool], ...]:
    of_run = col(LeaseRow.run_id) == fence.run_id, col(LeaseRow.gang_rank) == 0
    return (*of_run, col(LeaseRow.attempt) == fence.attempt)


def _newest_token(fence: Fence) -> SelectOfScalar[str]:
    tokens = select(LeaseRow.token).where(*_of_attempt(fence))
    return tokens.order_by(col(LeaseRow.lease_id).desc()).limit(1)


def _compared(session: Session, fence: Fence) -> LeaseRow | None:
    """The live lease of *fence*'s attempt, if it has one and that is the fence's."""
    query = select(LeaseRow).where(LIVE, *_of_attempt(fence))
    lease = session.exec(query.with_for_update()).first()
    if lease is None and fence.token:
        raise _lost(fence, "it was released")
    if lease is not None and lease.token != fence.token:
        raise _lost(fence, f"it was granted again since, on node {lease.node}")
    return lease


def _lost(fence: Fence, why: str) -> LeaseLost:
    return LeaseLost(fence.run_id, fence.attempt, why)
