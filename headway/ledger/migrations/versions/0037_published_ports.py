"""The port that a program has, beside that of its node, and how ports of a node are used"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    op.add_column(
        "lease_port", sa.Column("program_port", sa.Integer(), nullable=False, server_default="0")
    )
    op.execute("UPDATE lease_port SET program_port = port")
    op.add_column("node", sa.Column("ports", sa.JSON(), nullable=True))
