"""The ledger's tables of who may come in, what came in, who did what, and of teams' uids."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Index
from sqlmodel import Field, SQLModel

from headway.ledger.columns import ID, UtcDateTime, plain


class AccessTokenRow(SQLModel, table=True):
    """One token of one user. Only its digest is kept, so the table lets nobody in."""

    __tablename__ = "access_token"
    __table_args__ = (
        CheckConstraint("expires_at > made_at", name="token_expires_later"),
        CheckConstraint("length(digest) = 64", name="digest_is_sha256"),
        CheckConstraint("length(user_name) > 0 AND length(team) > 0", name="token_has_its_names"),
    )
    token_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    digest: str = Field(max_length=64, unique=True)
    user_name: str = Field(max_length=63)
    team: str = Field(max_length=63)
    scopes: str
    """Words of `model.access.Scope`, with spaces between."""
    made_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class SubmissionRow(SQLModel, table=True):
    """One job that the gateway took: whose its run is, whatever the run says of itself."""

    __tablename__ = "submission"
    key: str = Field(primary_key=True, max_length=400)
    """The run's idempotency key in Prefect."""
    owner: str = Field(max_length=63)
    team: str = Field(max_length=63)
    at: datetime = Field(sa_type=UtcDateTime)


class AuditRow(SQLModel, table=True):
    """One act. The database itself refuses to change or delete a row."""

    __tablename__ = "audit"
    __table_args__ = (Index("audit_by_time", "at"),)
    entry_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    actor: str
    act: str
    subject: str
    details: dict[str, str] = plain(has_empty=True, nullable=False)


class NodeLoginRow(SQLModel, table=True):
    """A role of PostgreSQL, and the node that it is the login of: see `ledger.node_logins`."""

    __tablename__ = "node_login"
    role: str = Field(primary_key=True, max_length=63)
    node: str = Field(max_length=63)
    made_at: datetime = Field(sa_type=UtcDateTime)


class NodeTokenRow(SQLModel, table=True):
    """The token by which a node with a login of its own comes in at the gateway: its digest."""

    __tablename__ = "node_token"
    node: str = Field(primary_key=True, max_length=63)
    digest: str = Field(max_length=64, unique=True)
    made_at: datetime = Field(sa_type=UtcDateTime)


class TeamUidsRow(SQLModel, table=True):
    """The uids of one team's programs and files."""

    __tablename__ = "team_uids"
    __table_args__ = (
        CheckConstraint("first > 0 AND last >= first", name="uids_are_a_range"),
        CheckConstraint("length(team) > 0", name="uids_have_their_team"),
    )
    team: str = Field(primary_key=True, max_length=63)
    first: int = Field(unique=True)
    last: int = Field(unique=True)
    allotted_at: datetime = Field(sa_type=UtcDateTime)
