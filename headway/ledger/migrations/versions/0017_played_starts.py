"""The interval of starts as the queue was played, and what was last played of each pool"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    for name in ("planned_low_s", "planned_high_s"):
        column = sa.Column(name, sa.Float(), nullable=False, server_default="0")
        op.add_column("start_forecast", column)
    # What was said before was not played: it must not be learnt from.
    op.execute("DELETE FROM start_forecast")
    op.execute("DELETE FROM setting WHERE name = 'start_calibration'")
