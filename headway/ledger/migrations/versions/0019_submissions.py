"""Whose the runs are that came in at the gateway"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "submission",
        sa.Column("key", sa.String(length=400), primary_key=True),
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("team", sa.String(length=63), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
    )
