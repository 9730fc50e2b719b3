"""Gangs: leases on several nodes for one run"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_LIVE = sa.text("released_at IS NULL")


def upgrade() -> None:
    # Plain ALTERs: Alembic's way on SQLite copies a table and drops the old one,
    # which the foreign keys that point at it forbid.
    op.execute("ALTER TABLE run ADD COLUMN gang_id VARCHAR(36) REFERENCES run (run_id)")
    op.execute(
        "ALTER TABLE run ADD COLUMN gang_rank INTEGER NOT NULL DEFAULT 0"
        " CONSTRAINT only_ranks_have_a_gang CHECK ((gang_id IS NULL) = (gang_rank = 0))"
    )
    op.create_index("one_run_per_rank", "run", ["gang_id", "attempt", "gang_rank"], unique=True)
    op.execute(
        "ALTER TABLE lease ADD COLUMN gang_rank INTEGER NOT NULL DEFAULT 0"
        " CONSTRAINT lease_rank_not_negative CHECK (gang_rank >= 0)"
    )
    op.drop_index("one_live_lease_per_run", "lease")
    op.create_index(
        "one_live_lease_per_rank",
        "lease",
        ["run_id", "gang_rank"],
        unique=True,
        sqlite_where=_LIVE,
        postgresql_where=_LIVE,
    )
