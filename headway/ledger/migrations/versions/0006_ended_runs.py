"""Ended runs by their end: what the newest of them lasted"""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("run_by_end", "run", ["ended_at"])
