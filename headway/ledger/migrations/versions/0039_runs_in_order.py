"""An index for lists of runs, newest first"""

from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.create_index("run_by_submission", "run", ["submitted_at", "run_id"])
