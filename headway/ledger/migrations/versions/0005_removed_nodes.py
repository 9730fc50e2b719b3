"""Nodes that an operator removed: their rows stay for the runs that they had"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("removed_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    op.execute("ALTER TABLE node DROP COLUMN removed_at")
