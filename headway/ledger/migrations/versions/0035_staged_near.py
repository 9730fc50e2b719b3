"""From which other nodes a data set was copied, and how much of it"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.add_column(
        "staging", sa.Column("from_nodes", sa.String(), nullable=False, server_default="")
    )
    op.add_column(
        "staging", sa.Column("peer_bytes", sa.BigInteger(), nullable=False, server_default="0")
    )
