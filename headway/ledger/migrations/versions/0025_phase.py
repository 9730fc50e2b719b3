"""What a run does before its program starts"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("standing", sa.Column("phase", sa.String(), nullable=False, server_default=""))
