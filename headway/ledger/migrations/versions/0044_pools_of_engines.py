"""Work pools whose runs are handed to a scheduler of others"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    op.create_table(
        "engine_pool",
        sa.Column("pool", sa.String(200), primary_key=True),
        sa.Column("engine", sa.String(20), nullable=False),
        sa.Column("node", sa.String(63), sa.ForeignKey("node.name"), nullable=False),
        sa.Column("has", sa.JSON(), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
    )
