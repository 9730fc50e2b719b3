"""What the parts of a GPU did, and what held its clocks down"""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    for name in (
        "sm_frac", "tensor_frac", "bandwidth_frac",
        "clock_frac", "power_limited_frac", "heat_limited_frac",
    ):  # fmt: skip
        op.add_column("telemetry", sa.Column(name, sa.Float(), nullable=True))
