"""Code that runs bring along"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "code_chunk",
        sa.Column("team", sa.String(length=63), primary_key=True),
        sa.Column("sha256", sa.String(length=64), primary_key=True),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("size_bytes > 0", name="code_chunk_not_empty"),
    )
    op.create_table(
        "code",
        sa.Column("team", sa.String(length=63), primary_key=True),
        sa.Column("code_id", sa.String(length=64), primary_key=True),
        sa.Column("commit_id", sa.String(length=64), nullable=False),
        sa.Column("diff", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=True),
        sa.Column("used_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("size_bytes >= 0 AND files > 0", name="code_size_not_negative"),
    )
