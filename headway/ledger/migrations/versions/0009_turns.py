"""When it is a run's turn: its tag in the order of the queue, and the start it was promised"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("run", sa.Column("tag", sa.Float(), nullable=True))
    op.add_column("run", sa.Column("promised_at", UtcDateTime(), nullable=True))
