"""The range of uids of each team"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "team_uids",
        sa.Column("team", sa.String(length=63), primary_key=True),
        sa.Column("first", sa.Integer(), nullable=False, unique=True),
        sa.Column("last", sa.Integer(), nullable=False, unique=True),
        sa.Column("allotted_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("first > 0 AND last >= first", name="uids_are_a_range"),
        sa.CheckConstraint("length(team) > 0", name="uids_have_their_team"),
    )
