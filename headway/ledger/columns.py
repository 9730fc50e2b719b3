"""Column types, the database's clock and inserts."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Interval,
    String,
    Table,
    Text,
    TypeDecorator,
    any_,
    cast,
    column,
    func,
    literal,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Field, Session, SQLModel, col, select

from headway.errors import shown
from headway.ledger.codec import adapter

log = logging.getLogger(__name__)

_NO_DIALECT: Any = None
"""For types that read alike from every database."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Refuse naive times; store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a naive time was handed to the ledger: {value}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Whatever zone the session has."""
        return None if value is None else value.astimezone(UTC)


class _Readable(TypeDecorator[Any]):
    """JSON of which one row that cannot be read, cut or of another shape, stops no other.

    A question is about many rows. Were one of them to raise, no run would be planned and none
    mended; so what cannot be read counts as not there, and that is logged once.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True

    def missing(self) -> Any:
        """Stands for what cannot be read."""
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """How a column's content is read."""
        read = super().result_processor(dialect, coltype)

        def read_if_possible(content: Any) -> Any:
            try:
                return read(content) if read is not None else content
            except ValueError as error:
                _tell_once(shown(str(content), 80), str(error).splitlines()[0])
                return self.missing()

        return read_if_possible


@lru_cache(maxsize=1000)
def _tell_once(content: str, why: str) -> None:
    log.warning("the ledger holds %s, which cannot be read (%s): it counts as none", content, why)


class Value(_Readable):
    """A frozen value of one kind, kept as JSON; None is NULL."""

    cache_ok = True

    def __init__(self, kind: Any) -> None:
        """Of *kind*, such as ``Demand`` or ``tuple[Gpu, ...]``."""
        self.kind = kind
        super().__init__()

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """As plain data."""
        return None if value is None else adapter(self.kind).dump_python(value, mode="json")

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """Read and validated again."""
        return None if value is None else adapter(self.kind).validate_python(value)


class Plain(_Readable):
    """A JSON object as it is; None is NULL."""

    cache_ok = True

    def __init__(self, *, has_empty: bool) -> None:
        """One that cannot be read counts as empty where *has_empty*, else as NULL."""
        self.has_empty = has_empty
        super().__init__()

    def missing(self) -> Any:
        """Empty, or None."""
        return {} if self.has_empty else None

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """Refuses what is no object."""
        if value is not None and not isinstance(value, dict):
            raise ValueError("it is no JSON object")
        return value


def readable(kind: Value | Plain, content: str | None) -> bool:
    """Whether a column of *kind* can be read that has *content*, the text of its JSON."""
    try:
        document = None if content is None else json.loads(content)
        kind.process_result_value(document, _NO_DIALECT)
    except ValueError:
        return False
    return True


class EnumWord(TypeDecorator[Any]):
    """A member of one enumeration, kept as its text."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[StrEnum], length: int | None = None) -> None:
        """Of *kind*, at most *length* characters."""
        self.kind = kind
        super().__init__(length)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Its text; refuses what is no member."""
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """The member."""
        return None if value is None else self.kind(value)


def among(column: Any, values: Iterable[object]) -> ColumnElement[bool]:
    """Whether *column* has one of *values*: one parameter, of which PostgreSQL takes 65,000."""
    kind = Text if isinstance(column.type, String) else column.type
    return col(column) == any_(cast(list(values), ARRAY(kind)))


def now(session: Session) -> datetime:
    """The database's time, at this moment of the transaction."""
    with session.no_autoflush:  # SQLAlchemy 2.1 would first write rows that are half changed
        moment: datetime | None = session.scalar(select(db_now()))
    assert moment is not None  # noqa: S101 - a database always has a time; for the type checker
    return moment


def insert_new(session: Session, row: SQLModel) -> bool:
    """Insert *row* unless there is one of its keys, which stays; whether it was inserted."""
    values = insert(type(row)).values(row.model_dump()).on_conflict_do_nothing()
    # Psycopg counts no rows of it: -1.
    return session.connection().execute(values.returning(literal(1))).first() is not None


def put(
    session: Session,
    table: type[SQLModel],
    key: Mapping[str, Any],
    where: ColumnElement[bool],
    **others: Any,
) -> bool:
    """Have a row of *key* with *others*, in the place of the one that may be there.

    Only if *where* holds, in the same statement; whether it did.
    """
    columns: Table = SQLModel.metadata.tables[str(table.__tablename__)]
    row = {
        name: given if isinstance(given, ColumnElement) else literal(given, columns.c[name].type)
        for name, given in {**key, **others}.items()
    }
    new: Any = select(*row.values()).where(where)
    into = insert(table).from_select([*row], new)
    instead = {name: into.excluded[name] for name in others}
    put_there = into.on_conflict_do_update(index_elements=[*key], set_=instead)
    return session.connection().execute(put_there.returning(literal(1))).first() is not None


def insert_all_new(session: Session, rows: Sequence[SQLModel]) -> None:
    """Insert *rows* of one table in one statement, but for those whose keys are there already."""
    table: Table = SQLModel.metadata.tables[str(rows[0].__tablename__)]
    values = [each.model_dump() for each in rows]
    columns = [table.c[name] for name in values[0]]
    new = select(*given(columns, values))
    into = insert(table).from_select([c.name for c in columns], new)
    session.connection().execute(into.on_conflict_do_nothing())


def given(
    columns: Sequence[Column[Any]], rows: Sequence[Mapping[str, Any]]
) -> ReadOnlyColumnCollection[str, Any]:
    """*rows* as a table of *columns* in a statement: an array for each column.

    A statement with a place for each value takes long to make, and may have 65,535 of them.
    """
    values = (cast([row[c.name] for row in rows], ARRAY(c.type)) for c in columns)
    table = func.unnest(*values).table_valued(*(column(c.name, c.type) for c in columns))
    return table.render_derived(name="new").c


class db_now(FunctionElement[datetime]):  # noqa: N801 - it is used as an SQL function
    """The database's time at this statement, not at the transaction's start."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(db_now)
def _clock_timestamp(_element: Any, _compiler: Any, **_: Any) -> str:
    return "clock_timestamp()"


def from_now(delta: timedelta) -> ColumnElement[datetime]:
    """The database's time at this statement, and *delta* more, as a part of a question."""
    return db_now() + literal(delta, Interval())


ID: Any = BigInteger()


def one_of(column: str, kind: type[StrEnum], name: str = "") -> CheckConstraint:
    """*column* has a member of *kind*, where it has anything."""
    listed = ", ".join(f"'{member}'" for member in kind)
    return CheckConstraint(f"{column} IN ({listed})", name=name or f"{column}_known")


def at_least(column: str, least: int, name: str | None = None) -> CheckConstraint:
    """*column* has a number that is not below *least*."""
    return CheckConstraint(f"{column} >= {least}", name=name or f"{column}_at_least_{least}")


def word(kind: type[StrEnum], *, nullable: bool = False) -> Any:
    """A field for one word of *kind*."""
    return Field(default=None, sa_column=Column(EnumWord(kind), nullable=nullable))


def value(kind: Any, *, nullable: bool = True) -> Any:
    """A field for a frozen value of *kind*."""
    return Field(default=None, sa_column=Column(Value(kind), nullable=nullable))


def by_name(kind: Any) -> Any:
    """A field for frozen values of *kind*, each by a name; none at first."""
    column: Any = Column(Value(Mapping[str, kind]), nullable=False, server_default="{}")
    return Field(default_factory=dict, sa_column=column)


def plain(*, has_empty: bool, nullable: bool = True) -> Any:
    """A field for a JSON object; see `Plain`."""
    return Field(default=None, sa_column=Column(Plain(has_empty=has_empty), nullable=nullable))
