"""Attempts, warnings and standings of runs"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0004"
down_revision = "0003"

_KINDS = (
    "'ok', 'failed', 'out_of_memory', 'gpu_out_of_memory', 'timed_out', 'cancelled', "
    "'infrastructure', 'preempted', 'refused'"
)


def upgrade() -> None:
    op.create_table(
        "attempt",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("node", sa.String(), nullable=True),
        sa.Column("resource", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("claimed_at", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("exit_kind", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_message", sa.String(), nullable=False),
        sa.Column("prediction", sa.JSON(), nullable=True),
        sa.Column("demand", sa.JSON(), nullable=True),
        sa.Column("measurement", sa.JSON(), nullable=True),
        sa.CheckConstraint("attempt >= 1", name="attempt_number_at_least_1"),
        sa.CheckConstraint(
            f"exit_kind IS NULL OR exit_kind IN ({_KINDS})", name="attempt_exit_known"
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (exit_kind IS NULL)", name="attempt_ends_with_its_exit"
        ),
    )
    op.create_table(
        "warning",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(length=16), primary_key=True),
        sa.Column("gpu", sa.String(length=96), primary_key=True),
        sa.Column("began_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("stopped_at", UtcDateTime(), nullable=True),
        sa.Column("measured", sa.Float(), nullable=False),
        sa.Column("limit", sa.Float(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('gpu_unused', 'over_grant', 'starved', 'gpu_lost')", name="kind_known"
        ),
    )
    op.create_table(
        "standing",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("elapsed_s", sa.Float(), nullable=False),
        sa.Column("done_frac", sa.Float(), nullable=True),
        sa.Column("remaining_s", sa.Float(), nullable=True),
        sa.Column("low_s", sa.Float(), nullable=True),
        sa.Column("high_s", sa.Float(), nullable=True),
        sa.CheckConstraint("done_frac BETWEEN 0 AND 1", name="standing_share"),
        sa.CheckConstraint("remaining_s >= 0", name="standing_remaining_not_negative"),
    )
