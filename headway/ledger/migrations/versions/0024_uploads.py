"""Data sets that members have put"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0024"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "upload",
        sa.Column("team", sa.String(length=63), primary_key=True),
        sa.Column("name", sa.String(length=63), primary_key=True),
        sa.Column("content_id", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("is_directory", sa.Boolean(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=False),
        sa.Column("put_at", UtcDateTime(), nullable=False),
        sa.Column("used_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("size_bytes > 0 AND files > 0", name="upload_not_empty"),
    )
