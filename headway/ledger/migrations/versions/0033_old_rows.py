"""Runs of which only what usage needs is kept"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"

_LEFT = sa.text("rows_removed_at IS NULL")


def upgrade() -> None:
    op.add_column("run", sa.Column("rows_removed_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "run_with_its_rows", "run", ["ended_at"], sqlite_where=_LEFT, postgresql_where=_LEFT
    )
