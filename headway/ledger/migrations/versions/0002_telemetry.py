"""Telemetry points"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0002"
down_revision = "0001"

# SQLite numbers only columns of exactly INTEGER by itself.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "telemetry",
        sa.Column("point_id", _ID, autoincrement=True, primary_key=True),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("gpu", sa.String(length=96), nullable=False),
        sa.Column("period_s", sa.Integer(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("used_bytes", sa.BigInteger(), nullable=True),
        sa.Column("busy_frac", sa.Float(), nullable=True),
        sa.Column("disk_free_bytes", sa.BigInteger(), nullable=True),
        sa.Column("temperature_c", sa.Float(), nullable=True),
        sa.Column("power_w", sa.Float(), nullable=True),
        sa.Column("pcie_rx_bytes_per_s", sa.Float(), nullable=True),
        sa.Column("pcie_tx_bytes_per_s", sa.Float(), nullable=True),
        sa.Column("nvlink_rx_bytes_per_s", sa.Float(), nullable=True),
        sa.Column("nvlink_tx_bytes_per_s", sa.Float(), nullable=True),
        sa.Column("run_bytes", sa.JSON(), nullable=False),
        sa.CheckConstraint("period_s IN (1, 60)", name="telemetry_period_known"),
        sa.CheckConstraint("used_bytes >= 0", name="telemetry_used_not_negative"),
    )
    op.create_index("telemetry_by_time", "telemetry", ["node", "period_s", "at"])
