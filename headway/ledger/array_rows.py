"""Rows of arrays and their members, as other transactions of the ledger look at them."""

from typing import Any

from sqlalchemy import and_, func
from sqlmodel import Session, col, select

from headway.ledger.array_tables import ArrayRow
from headway.ledger.tables import RunRow
from headway.model.lease import Wait
from headway.model.run import GRANTED, RunState
from headway.policy.arrays import full_wait

HAS_MORE = and_(col(ArrayRow.created) < col(ArrayRow.size), col(ArrayRow.cancelled_at).is_(None))
"""Arrays of which another member is to become a run."""


def jobs_to_come(session: Session, team: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and jobs of the team's runs that have not ended, and of arrays with more members."""
    runs = select(RunRow.name, RunRow.job).where(
        RunRow.team == team, RunRow.state != RunState.ENDED
    )
    arrays = select(ArrayRow.name, ArrayRow.job).where(ArrayRow.team == team, HAS_MORE)
    return [*session.exec(runs), *session.exec(arrays)]


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
