"""Parts of a gang that are ready, and where the others reach them"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("run", sa.Column("ready_attempt", sa.Integer(), nullable=True))
    op.add_column("run", sa.Column("place", sa.String(), nullable=True))
