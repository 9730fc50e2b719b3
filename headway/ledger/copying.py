"""Copies a whole ledger from one database into another, as plain rows."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    String,
    TableClause,
    column,
    func,
    insert,
    select,
    table,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine
from sqlmodel import Session, SQLModel, col
from sqlmodel import select as select_rows

from headway.errors import LedgerError
from headway.ledger.columns import EnumWord, Value
from headway.ledger.database import Database, open_engine
from headway.ledger.tables import RunRow
from headway.model.run import RunState

_BATCH = 1000
_AT_WORK = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")


@dataclass(frozen=True, slots=True)
class Copied:
    """What came along, and what did not."""

    rows: dict[str, int]
    """By table."""
    left: dict[str, int]
    """Rows that the other database refuses, by table; only where there are any."""


def not_ended(url: str) -> int:
    """How many runs of the ledger at *url* wait or are under way."""
    database = Database(open_engine(url))
    try:
        with database.reading() as session:
            waits = select_rows(func.count()).select_from(RunRow)
            return session.exec(waits.where(col(RunRow.state) != RunState.ENDED)).one()
    finally:
        database.engine.dispose()


def not_ended_in_prefect(file: Path) -> int:
    """How many runs in the SQLite database of a Prefect server wait or are under way.

    A schedule makes its runs anew, so those that it has made do not count.
    """
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        marks = ", ".join("?" * len(_AT_WORK))
        query = (
            f"SELECT COUNT(*) FROM flow_run WHERE state_type IN ({marks}) AND NOT auto_scheduled"  # noqa: S608 - question marks alone
        )
        try:
            return int(database.execute(query, _AT_WORK).fetchone()[0])
        except sqlite3.OperationalError:  # of a server that never came up
            return 0


def copy_ledger(source_url: str, target_url: str) -> Copied:
    """Copy every row of the ledger at *source_url* into the empty one at *target_url*.

    Both have this code's tables. It is one transaction: all of it, or nothing.

    Raises:
        LedgerUnreachable: One of the databases does not answer.
        LedgerError: There is something in the target already.
    """
    source, target = Database(open_engine(source_url)), Database(open_engine(target_url))
    try:
        with source.reading() as reads, target.transaction() as writes:
            return _copy(reads, writes)
    finally:
        source.engine.dispose()
        target.engine.dispose()


def _copy(reads: Session, writes: Session) -> Copied:
    connection = writes.connection()
    if connection.dialect.name == "postgresql":
        # Runs refer to each other in any order; what refers to what was checked at its source.
        connection.execute(text("SET LOCAL session_replication_role = replica"))
    rows, left = {}, {}
    for name, plain in _plain_tables():
        if connection.execute(select(func.count()).select_from(plain)).scalar_one():
            raise LedgerError(f"nothing was copied: the other ledger has rows in {name} already")
        rows[name] = left[name] = 0
        for batch in _batches(reads, plain):
            refused = _insert(connection, plain, batch)
            rows[name] += len(batch) - refused
            left[name] += refused
        _go_on_counting(connection, plain)
    return Copied(rows, {name: count for name, count in left.items() if count})


def _plain_tables() -> Iterator[tuple[str, TableClause]]:
    """Every table, with its values as they are stored: what is old need not be understood."""
    for each in SQLModel.metadata.sorted_tables:
        yield each.name, table(each.name, *(column(c.name, _plain(c.type)) for c in each.columns))


def _plain(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    if isinstance(kind, Value):
        return JSON(none_as_null=True)
    return String() if isinstance(kind, EnumWord) else kind


def _batches(reads: Session, plain: TableClause) -> Iterator[Sequence[dict[str, Any]]]:
    found = reads.connection().execution_options(yield_per=_BATCH).execute(select(plain))
    for partition in found.mappings().partitions():
        yield [dict(row) for row in partition]


def _insert(connection: Connection, plain: TableClause, rows: Sequence[dict[str, Any]]) -> int:
    """Insert *rows*; how many of them were refused."""
    try:
        with connection.begin_nested():
            connection.execute(insert(plain), list(rows))
    except DBAPIError:
        if len(rows) == 1:
            return 1
        half = len(rows) // 2
        return _insert(connection, plain, rows[:half]) + _insert(connection, plain, rows[half:])
    return 0


def _go_on_counting(connection: Connection, plain: TableClause) -> None:
    """Let the numbers that the database gives go on after those that were copied."""
    if connection.dialect.name != "postgresql":
        return
    for each in SQLModel.metadata.tables[plain.name].primary_key:
        sequence = func.pg_get_serial_sequence(plain.name, each.name)
        if connection.execute(select(sequence)).scalar_one() is not None:
            newest = select(func.max(plain.c[each.name]))
            if (last := connection.execute(newest).scalar_one()) is not None:
                connection.execute(select(func.setval(sequence, last)))
