"""The ledger's table of work pools whose runs an engine starts."""

from datetime import datetime

from sqlalchemy import func
from sqlmodel import Field, Session, SQLModel, select

from headway.errors import InvalidInput
from headway.ledger.columns import UtcDateTime, value
from headway.model.engine import EnginePool

_LOCK = 0x706F6F6C  # "pool": an advisory lock's number


class EnginePoolRow(SQLModel, table=True):
    """A work pool whose runs an engine starts."""

    __tablename__ = "engine_pool"
    pool: str = Field(primary_key=True, max_length=200)
    engine: str = Field(max_length=20)
    node: str = Field(max_length=63, foreign_key="node.name")
    has: EnginePool | None = value(EnginePool)
    read_at: datetime = Field(sa_type=UtcDateTime)


def pools_as_they_are(session: Session) -> None:
    """Let no pool become an engine's, or a node's, until the transaction ends."""
    session.exec(select(func.pg_advisory_xact_lock(_LOCK)))  # no login of a node may lock tables


def refuse_of_engine(session: Session, pool: str) -> None:
    """Raise `InvalidInput` where no node may be in *pool*: an engine starts its runs.

    A scheduler and a follower would each start them.
    """
    if (row := session.get(EnginePoolRow, pool)) is not None:
        allowed = f"give another work pool: runs of this one are handed to {row.engine}"
        raise InvalidInput("HEADWAY_POOL", pool, allowed)
