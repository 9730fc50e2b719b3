"""The table of the data sets that members have put."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, LargeBinary
from sqlmodel import Field, SQLModel

from headway.ledger.columns import UtcDateTime


class UploadRow(SQLModel, table=True):
    """A data set that a member of a team has put under a name; its chunks lie with the gateway."""

    __tablename__ = "upload"
    __table_args__ = (CheckConstraint("size_bytes > 0 AND files > 0", name="upload_not_empty"),)
    team: str = Field(primary_key=True, max_length=63)
    name: str = Field(primary_key=True, max_length=63)
    content_id: str = Field(max_length=64)
    owner: str = Field(max_length=63)
    is_directory: bool
    files: int
    size_bytes: int = Field(sa_type=BigInteger)
    manifest: bytes = Field(sa_type=LargeBinary)
    put_at: datetime = Field(sa_type=UtcDateTime)
    used_at: datetime = Field(sa_type=UtcDateTime)
