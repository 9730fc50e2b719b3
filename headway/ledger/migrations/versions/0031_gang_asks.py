"""What parts of a gang ask each other to run"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "gang_ask",
        sa.Column("ask_id", _ID, primary_key=True),
        sa.Column("gang_id", sa.String(36), sa.ForeignKey("run.run_id"), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("from_rank", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("to_rank", sa.Integer(), nullable=False),
        sa.Column("command", sa.String(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
    )
    op.create_index(
        "one_ask_of_a_name",
        "gang_ask",
        ["gang_id", "attempt", "from_rank", "name"],
        unique=True,
    )
