"""Rows of the run table: found, moved along a run's states, and read as records."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Table, update
from sqlmodel import Session, SQLModel, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import RunUnknown
from headway.ledger.array_tables import ArrayRow
from headway.ledger.codec import record
from headway.ledger.columns import among, given
from headway.ledger.errors import IllegalTransition
from headway.ledger.records import RunRecord
from headway.ledger.tables import RunRow
from headway.model.run import TRANSITIONS, RunState

_Row = TypeVar("_Row", bound=SQLModel)
_Listed = TypeVar("_Listed", RunRow, ArrayRow)
_RUNS: Table = SQLModel.metadata.tables["run"]
_LEAST_OF_AN_ID = 4
"""Fewer characters are no beginning of an id."""
_MOST_CHARACTERS = 300
"""Longer than any id and any name of a run."""


def check_askable(text: str) -> None:
    """Let no database be asked for *text* that it does not take, not even in a question.

    Raises:
        RunUnknown: No run and no array can be called so.
    """
    hidden = any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)
    if hidden or len(text) > _MOST_CHARACTERS:
        raise RunUnknown(text)


def chosen(
    table: type[_Listed],
    *,
    team: str | None = None,
    owner: str | None = None,
    name: str = "",
    since: datetime | None = None,
) -> SelectOfScalar[_Listed]:
    """Runs or arrays: only those of *team* and *owner* where they are given.

    Args:
        table: Which of the two.
        team: Whose they are; None for any.
        owner: Whose they are; None for anybody.
        name: What their names contain, in any case.
        since: When they were submitted, at the earliest.
    """
    query = select(table)
    if team is not None:
        query = query.where(col(table.team) == team)
    if owner is not None:
        query = query.where(col(table.owner) == owner)
    if name:
        query = query.where(col(table.name).icontains(name, autoescape=True))
    return query if since is None else query.where(col(table.submitted_at) >= since)


def by_id(session: Session, query: SelectOfScalar[_Row], column: str, text: str) -> _Row | None:
    """The row of *query* whose id, in *column*, is *text* or alone begins with it; None if none."""
    row = session.exec(query.where(column == text)).first()
    if row is None and len(text) >= _LEAST_OF_AN_ID:
        starts = col(column).startswith(text, autoescape=True)
        found = session.exec(query.where(starts).limit(2)).all()
        row = found[0] if len(found) == 1 else None
    return row


def run_row(session: Session, run_id: str, *, lock: bool = False) -> RunRow:
    """The row of a run, held until the transaction ends where *lock* is true.

    Raises:
        RunUnknown: There is none.
    """
    row = session.get(RunRow, run_id, with_for_update=lock or None)
    if row is None:
        raise RunUnknown(run_id)
    return row


def write_many(
    session: Session, rows: Sequence[Mapping[str, Any]], where: ColumnElement[bool]
) -> None:
    """Write to many runs in one statement, to those of which *where* holds.

    Args:
        session: Of a transaction.
        rows: For each run its `run_id` and, in all of them the same, columns with their new values.
        where: A condition on the table of runs.
    """
    if not rows:
        return
    named = select(RunRow.run_id).where(among(RunRow.run_id, (row["run_id"] for row in rows)))
    session.exec(named.order_by("run_id").with_for_update()).all()  # all lock in one order
    columns = [_RUNS.c[name] for name in rows[0]]
    new = given(columns, rows)
    change = update(_RUNS).where(_RUNS.c.run_id == new.run_id, where)
    session.execute(change.values({c.name: new[c.name] for c in columns if c.name != "run_id"}))


def move(row: RunRow, to: RunState) -> None:
    """Change a run's state along `TRANSITIONS`, or raise `IllegalTransition`."""
    if to not in TRANSITIONS[row.state]:
        raise IllegalTransition(row.run_id, row.state, to)
    row.state = to


def ask_for_least(row: RunRow) -> None:
    """Let a run of several sizes wait for its smallest again, whichever its last attempt had."""
    said = row.prediction
    if said is not None and said.sizes:
        row.demand, row.prediction = said.sizes[0].demand, said.of_size(said.sizes[0])


def runs_of(session: Session, run_ids: Sequence[str]) -> list[RunRecord]:
    """The records of *run_ids*, as many of them as there are."""
    query = select(RunRow).where(among(RunRow.run_id, run_ids)).order_by("run_id")
    return [run_record(row) for row in session.exec(query)] if run_ids else []


def run_record(row: RunRow) -> RunRecord:
    """The record of a row; the exit of an earlier attempt is no exit of the run."""
    return record(RunRecord, row, exit=row.exit() if row.state is RunState.ENDED else None)
