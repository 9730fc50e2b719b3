"""Nodes that an operator removed, whose rows stay for the runs that they had; disk of leases"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("node", sa.Column("removed_at", UtcDateTime(), nullable=True))
    op.execute(
        "ALTER TABLE lease ADD COLUMN disk_bytes BIGINT NOT NULL DEFAULT 0"
        " CONSTRAINT lease_disk_not_negative CHECK (disk_bytes >= 0)"
    )
