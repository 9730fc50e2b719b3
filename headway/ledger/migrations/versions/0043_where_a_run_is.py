"""What was last said of how far a run is says where it is and how fast, too"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    for name, kind in (
        ("iteration", sa.BigInteger()),
        ("epoch", sa.Float()),
        ("total", sa.BigInteger()),
        ("per_s", sa.Float()),
    ):
        op.add_column("standing", sa.Column(name, kind, nullable=True))
    op.create_check_constraint("standing_per_s_at_least_0", "standing", "per_s >= 0")
