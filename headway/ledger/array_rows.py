"""Rows of arrays and their members, as other transactions of the ledger look at them."""

from sqlalchemy import func
from sqlmodel import Session, col, select

from headway.ledger.array_tables import ArrayRow
from headway.ledger.tables import RunRow
from headway.model.lease import Wait
from headway.model.run import GRANTED
from headway.policy.arrays import full_wait


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
    return full_wait(session.exec(query).one(), array.at_most)
