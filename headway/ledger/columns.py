"""Column types and the database's clock, alike on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, TypeDecorator
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Session, select


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

    def process_result_value(
        self,
        value: datetime | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> datetime | None:
        """Give aware times."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now(session: Session) -> datetime:
    """The database's time, at this moment of the transaction."""
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
