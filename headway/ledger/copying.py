"""Copies a whole ledger from the SQLite file of an older site into PostgreSQL."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from headway.errors import LedgerError
from headway.ledger.database import Database, open_engine

_BATCH = 1000
_AT_WORK = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")
_VERSION = "alembic_version"


@dataclass(frozen=True, slots=True)
class Copied:
    """What came along, and what did not."""

    rows: dict[str, int]
    """By table."""
    left: dict[str, int]
    """Rows that PostgreSQL refuses, by table; only where there are any."""


def not_ended(file: Path) -> int:
    """How many runs of the ledger in *file* wait or are under way."""
    return _count(file, "SELECT COUNT(*) FROM run WHERE state <> 'ended'")


def not_ended_in_prefect(file: Path) -> int:
    """How many runs in the SQLite database of a Prefect server wait or are under way.

    A schedule makes its runs anew, so those that it has made do not count.
    """
    marks = ", ".join("?" * len(_AT_WORK))
    query = f"SELECT COUNT(*) FROM flow_run WHERE state_type IN ({marks}) AND NOT auto_scheduled"  # noqa: S608 - question marks alone
    return _count(file, query, _AT_WORK)


def copy_ledger(file: Path, url: str) -> Copied:
    """Copy every row of the ledger in *file* into the empty database at *url*.

    The database gets the tables that the file has, and then, with the rows in them, those of this
    code. The copy is one transaction: all of it, or nothing.

    Raises:
        LedgerUnreachable: The database does not answer.
        LedgerError: There is something in it already, or the file is no ledger.
    """
    database = Database(open_engine(url))
    try:
        with _reading(file) as source:
            database.migrate(_version(source, file))
            with database.transaction() as session:
                driver = session.connection().connection.driver_connection
                assert isinstance(driver, psycopg.Connection)  # noqa: S101 - see `open_engine`
                copied = _copy(source, driver)
        database.migrate()
    finally:
        database.engine.dispose()
    return copied


def _version(source: sqlite3.Connection, file: Path) -> str:
    try:
        return str(source.execute(f"SELECT version_num FROM {_VERSION}").fetchone()[0])  # noqa: S608 - a constant
    except (sqlite3.Error, TypeError) as error:
        raise LedgerError(f"nothing was copied: {file} is no ledger ({error})") from error


def _copy(source: sqlite3.Connection, target: psycopg.Connection) -> Copied:
    # Runs refer to each other in any order; what refers to what was checked at its source.
    target.execute("SET LOCAL session_replication_role = replica")
    target.execute("SET LOCAL timezone = 'UTC'")  # in which SQLite has all times
    rows, left = {}, {}
    for name, columns in _tables(source).items():
        into = Identifier(name)
        if target.execute(SQL("SELECT 1 FROM {} LIMIT 1").format(into)).fetchone():
            raise LedgerError(f"nothing was copied: the other ledger has rows in {name} already")
        insert = SQL("INSERT INTO {} ({}) VALUES ({})").format(
            into,
            SQL(", ").join(map(Identifier, columns)),
            SQL(", ").join([Placeholder()] * len(columns)),
        )
        rows[name] = left[name] = 0
        found = source.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - a table's name
        while batch := [tuple(map(_told, row)) for row in found.fetchmany(_BATCH)]:
            refused = _insert(target, insert, batch)
            rows[name] += len(batch) - refused
            left[name] += refused
        _go_on_counting(target, name)
    return Copied(rows, {name: count for name, count in left.items() if count})


def _tables(source: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of every table that has rows of the site."""
    names = source.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {
        name: [each[1] for each in source.execute(f'PRAGMA table_info("{name}")')]
        for (name,) in names
        if name != _VERSION
    }


def _told(value: Any) -> str | bytes | None:
    """As a text whose type is PostgreSQL's to find: SQLite knows neither times nor truth."""
    return value if value is None or isinstance(value, bytes) else str(value)


def _insert(target: psycopg.Connection, insert: Composed, rows: Sequence[Any]) -> int:
    """Insert *rows*; how many of them were refused."""
    try:
        with target.transaction(), target.cursor() as cursor:
            cursor.executemany(insert, rows)
    except (psycopg.DataError, psycopg.IntegrityError):
        if len(rows) == 1:
            return 1
        half = len(rows) // 2
        return _insert(target, insert, rows[:half]) + _insert(target, insert, rows[half:])
    return 0


def _go_on_counting(target: psycopg.Connection, name: str) -> None:
    """Let the numbers that the database gives go on after those that were copied."""
    keys = target.execute(
        "SELECT attname, pg_get_serial_sequence(%s, attname) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        (name, name),
    ).fetchall()
    for column, sequence in keys:
        if sequence is not None:
            query = SQL("SELECT setval(%s, max({0})) FROM {1} HAVING max({0}) IS NOT NULL")
            target.execute(query.format(Identifier(column), Identifier(name)), (sequence,))


def _count(file: Path, query: str, values: Sequence[str] = ()) -> int:
    if not file.exists():
        return 0
    with _reading(file) as source:
        try:
            return int(source.execute(query, values).fetchone()[0])
        except sqlite3.OperationalError:  # of a site that never came up
            return 0


@contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source:
        yield source
