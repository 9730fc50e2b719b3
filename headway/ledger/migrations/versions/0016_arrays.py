"""Arrays: one row each, and which run is which of their members; and which run follows which"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "job_array",
        sa.Column("array_id", sa.String(length=36), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("job", sa.JSON(), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("at_most", sa.Integer(), nullable=True),
        sa.Column("created", sa.Integer(), nullable=False),
        sa.Column("submitted_at", UtcDateTime(), nullable=False),
        sa.Column("cancelled_at", UtcDateTime(), nullable=True),
        sa.Column("cancelled_by", sa.String(), nullable=False),
        sa.CheckConstraint("size >= 1", name="size_at_least_1"),
        sa.CheckConstraint("at_most >= 1", name="at_most_at_least_1"),
        sa.CheckConstraint("created BETWEEN 0 AND size", name="created_within_size"),
    )
    op.create_index("array_by_pool", "job_array", ["pool", "submitted_at"])
    op.create_index("one_array_per_key", "job_array", ["key"], unique=True)
    # Plain ALTERs, as in 0003.
    op.execute("ALTER TABLE run ADD COLUMN array_id VARCHAR(36)")
    op.execute(
        "ALTER TABLE run ADD COLUMN array_index INTEGER"
        " CONSTRAINT members_have_an_index CHECK ((array_id IS NULL) = (array_index IS NULL))"
    )
    op.create_index("one_run_per_member", "run", ["array_id", "array_index"], unique=True)
    op.add_column("run", sa.Column("after_run_id", sa.String(length=63), nullable=True))
    op.add_column("run", sa.Column("after_when", sa.String(), nullable=True))
