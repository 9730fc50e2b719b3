"""Column types and the database's clock, alike on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Integer,
    String,
    TypeDecorator,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Field, Session, select

from headway.ledger.codec import adapter


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in UTC; SQLite keeps them as text without a zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive times; store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a naive time was handed to the ledger: {value}")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Give aware times."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Value(TypeDecorator[Any]):
    """A frozen value of one kind, kept as JSON; None is NULL."""

    impl = JSON(none_as_null=True)
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


def now(session: Session) -> datetime:
    """The database's time, at this moment of the transaction."""
    with session.no_autoflush:  # SQLAlchemy 2.1 would first write rows that are half changed
        moment: datetime | None = session.scalar(select(db_now()))
    assert moment is not None  # noqa: S101 - a database always has a time; for the type checker
    return moment


class db_now(FunctionElement[datetime]):  # noqa: N801 - it is used as an SQL function
    """The database's time at this statement, not at the transaction's start."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(db_now, "postgresql")
def _postgresql_now(_element: Any, _compiler: Any, **_: Any) -> str:
    return "clock_timestamp()"


@compiles(db_now, "sqlite")
def _sqlite_now(_element: Any, _compiler: Any, **_: Any) -> str:
    # The text form in which SQLAlchemy stores times on SQLite.
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


# SQLite numbers only columns of exactly INTEGER by itself.
ID: Any = BigInteger().with_variant(Integer, "sqlite")


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
