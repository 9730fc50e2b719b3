"""Leases of a node by when they ended: who shared the GPUs of a run is asked at each end"""

from alembic import op

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    op.create_index("leases_of_node_by_end", "lease", ["node", "released_at"])
