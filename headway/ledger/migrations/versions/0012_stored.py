"""What of ended runs is in the site's store"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "stored",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", UtcDateTime(), nullable=False),
        sa.Column("removed_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("size_bytes >= 0 AND files >= 0", name="stored_size_not_negative"),
    )
