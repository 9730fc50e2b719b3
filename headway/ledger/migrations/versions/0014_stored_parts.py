"""Each node that ran attempts of a run has its own part of it in the store"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    # The primary key changes, which SQLite can only do by a new table.
    op.execute("CREATE TABLE stored_before AS SELECT * FROM stored")
    op.drop_table("stored")
    op.create_table(
        "stored",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", UtcDateTime(), nullable=False),
        sa.Column("removed_at", UtcDateTime(), nullable=True),
        sa.Column("note", sa.String(), nullable=False, server_default=""),
        sa.CheckConstraint("size_bytes >= 0 AND files >= 0", name="stored_size_not_negative"),
    )
    op.execute(
        "INSERT INTO stored (run_id, attempt, key, files, size_bytes, stored_at, removed_at) "
        "SELECT run_id, attempt, key, files, size_bytes, stored_at, removed_at FROM stored_before"
    )
    op.drop_table("stored_before")
