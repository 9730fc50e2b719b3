"""How data sets came to the nodes of attempts"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "staging",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(length=63), primary_key=True),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("uri", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("took_s", sa.Float(), nullable=False),
        sa.Column("was_there", sa.Boolean(), nullable=False),
        sa.CheckConstraint("size_bytes >= 0", name="staging_size_not_negative"),
    )
    op.create_index("staging_by_node", "staging", ["node"])
