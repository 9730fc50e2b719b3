"""What people are to be told of runs"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import ID, UtcDateTime

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "notice",
        sa.Column("notice_id", ID, primary_key=True),
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), nullable=True),
        sa.Column(
            "array_id", sa.String(length=36), sa.ForeignKey("job_array.array_id"), nullable=True
        ),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("block", sa.String(), nullable=False),
        sa.Column("made_at", UtcDateTime(), nullable=False),
        sa.Column("taken_at", UtcDateTime(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.CheckConstraint("kind IN ('started', 'ended', 'array_ended')", name="notice_kind_known"),
        sa.CheckConstraint("(run_id IS NULL) <> (array_id IS NULL)", name="notice_of_one"),
    )
    op.create_index("notice_by_run", "notice", ["run_id"])
    op.create_index(
        "notice_untaken",
        "notice",
        ["notice_id"],
        sqlite_where=sa.text("taken_at IS NULL"),
        postgresql_where=sa.text("taken_at IS NULL"),
    )
