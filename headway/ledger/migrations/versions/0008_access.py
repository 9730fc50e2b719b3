"""Tokens of the gateway's users, and the audit table, whose rows stay as they are"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import ID, UtcDateTime

revision = "0008"
down_revision = "0007"

_REFUSED = "rows of the audit table are never changed or deleted"


def upgrade() -> None:
    op.create_table(
        "access_token",
        sa.Column("token_id", ID, primary_key=True),
        sa.Column("digest", sa.String(length=64), nullable=False, unique=True),
        sa.Column("user_name", sa.String(length=63), nullable=False),
        sa.Column("team", sa.String(length=63), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("made_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("expires_at > made_at", name="token_expires_later"),
        sa.CheckConstraint("length(digest) = 64", name="digest_is_sha256"),
        sa.CheckConstraint(
            "length(user_name) > 0 AND length(team) > 0", name="token_has_its_names"
        ),
    )
    op.create_table(
        "audit",
        sa.Column("entry_id", ID, primary_key=True),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("act", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
    )
    op.create_index("audit_by_time", "audit", ["at"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}' USING ERRCODE = 'restrict_violation'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{change.lower()} BEFORE {change} ON audit "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )
