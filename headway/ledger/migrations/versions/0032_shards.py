"""Of which files a node of a gang has its part"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.add_column("staging", sa.Column("listing", sa.String(), nullable=False, server_default=""))
