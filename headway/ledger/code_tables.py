"""Tables for the code that runs bring along."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, LargeBinary, Text
from sqlmodel import Field, SQLModel

from headway.ledger.columns import UtcDateTime


class CodeChunkRow(SQLModel, table=True):
    """A piece of content that a team has sent: what another team sent is another row."""

    __tablename__ = "code_chunk"
    __table_args__ = (CheckConstraint("size_bytes > 0", name="code_chunk_not_empty"),)
    team: str = Field(primary_key=True, max_length=63)
    sha256: str = Field(primary_key=True, max_length=64)
    size_bytes: int
    content: bytes = Field(sa_type=LargeBinary)
    seen_at: datetime = Field(sa_type=UtcDateTime)
    """When somebody last sent it, or was told that it need not be sent."""


class CodeRow(SQLModel, table=True):
    """A folder of code that a team has sent whole."""

    __tablename__ = "code"
    __table_args__ = (
        CheckConstraint("size_bytes >= 0 AND files > 0", name="code_size_not_negative"),
    )
    team: str = Field(primary_key=True, max_length=63)
    code_id: str = Field(primary_key=True, max_length=64)
    commit_id: str = Field(max_length=64)
    diff: str = Field(sa_type=Text)
    files: int
    size_bytes: int = Field(sa_type=BigInteger)
    manifest: bytes | None = Field(default=None, sa_type=LargeBinary)
    """None since its content was let go of; where it came from stays known."""
    used_at: datetime = Field(sa_type=UtcDateTime)
    """When it was last sent or submitted."""
