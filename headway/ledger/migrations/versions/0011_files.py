"""Where each node serves the files of its runs, and with which certificate"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    for name in ("files_url", "files_certificate"):
        op.add_column("node", sa.Column(name, sa.String(), nullable=False, server_default=""))
