"""What keeps two from acting for one run: deadlines of claims, ids of nodes, what Prefect was told"""

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("lease", sa.Column("start_by", UtcDateTime(), nullable=True))
    op.add_column("run", sa.Column("told_end_at", UtcDateTime(), nullable=True))
    op.add_column("run", sa.Column("suspended_at", UtcDateTime(), nullable=True))
    op.add_column("run", sa.Column("flow_starts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("flow_starts_since", UtcDateTime(), nullable=True))
    op.add_column("node", sa.Column("identity", sa.String(), nullable=False, server_default=""))
    # Prefect is asked anew only about runs that end from now on.
    op.execute("UPDATE run SET told_end_at = ended_at WHERE state = 'ended'")
    op.create_index("run_by_told_end", "run", ["state", "told_end_at"])
