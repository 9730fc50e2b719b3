"""Rows of arrays and their members, as other transactions of the ledger look at them."""

from sqlalchemy import func
from sqlmodel import Session, col, select

from headway.ledger.array_tables import ArrayRow
from headway.ledger.tables import RunRow
from headway.model.lease import Resource, Wait
from headway.model.run import GRANTED


def array_is_full(session: Session, run: RunRow) -> Wait | None:
    """Why *run* may not start beside the other members of its array; None where it may.

    The array's row is locked: of two members that are granted on two nodes at one moment, the
    second one sees the first.
    """
    if run.array_id is None:
        return None
    array = session.get(ArrayRow, run.array_id, with_for_update=True)
    if array is None or array.at_most is None:
        return None
    query = select(func.count()).where(
        RunRow.array_id == run.array_id, col(RunRow.state).in_(GRANTED)
    )
    running = session.exec(query).one()
    return full_wait(running, array.at_most) if running >= array.at_most else None


def full_wait(running: int, at_most: int) -> Wait:
    """The wait of a member whose array runs as many as it may."""
    return Wait(Resource.TURN, f"its array runs {at_most} at a time, and {running} of it run")
