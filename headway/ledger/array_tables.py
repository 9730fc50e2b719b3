"""The ledger's table of arrays: one row each, whatever number of members it has."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index
from sqlmodel import Field, SQLModel

from headway.ledger.columns import UtcDateTime, at_least, plain


class ArrayRow(SQLModel, table=True):
    """An array. Members that have not become runs yet are but the difference of two numbers."""

    __tablename__ = "job_array"
    __table_args__ = (
        at_least("size", 1),
        at_least("at_most", 1),
        CheckConstraint("created BETWEEN 0 AND size", name="created_within_size"),
        Index("array_by_pool", "pool", "submitted_at"),
        Index("one_array_per_key", "key", unique=True),
    )
    array_id: str = Field(primary_key=True, max_length=36)
    name: str
    owner: str
    team: str
    pool: str
    queue: str
    key: str | None = None
    """Submitting it twice with one key gives one array."""
    job: dict[str, Any] = plain(has_empty=True, nullable=False)
    parameters: dict[str, Any] = plain(has_empty=True, nullable=False)
    size: int
    at_most: int | None = None
    created: int = 0
    submitted_at: datetime = Field(sa_type=UtcDateTime)
    cancelled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Since when no more of its members become runs."""
    cancelled_by: str = ""
