"""What was said of when waiting runs start, and when they did"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "start_forecast",
        sa.Column("run_id", sa.String(length=36), primary_key=True),
        sa.Column("said_at", UtcDateTime(), primary_key=True),
        sa.Column("planned_s", sa.Float(), nullable=False),
        sa.Column("earliest_at", UtcDateTime(), nullable=False),
        sa.Column("expected_at", UtcDateTime(), nullable=False),
        sa.Column("latest_at", UtcDateTime(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("ahead", sa.Integer(), nullable=False),
        sa.Column("at_submission", sa.Boolean(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("gpus >= 0", name="gpus_at_least_0"),
        sa.CheckConstraint("ahead >= 0", name="ahead_at_least_0"),
        sa.CheckConstraint("planned_s >= 0", name="planned_s_at_least_0"),
    )
    op.create_index("start_forecast_by_start", "start_forecast", ["started_at", "said_at"])
