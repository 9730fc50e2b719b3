"""Leases whose host memory is promised to others"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.add_column(
        "lease", sa.Column("lent", sa.Boolean(), nullable=False, server_default=sa.false())
    )
