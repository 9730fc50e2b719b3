"""Whose run a trace is of, which alone it tells of"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"

_OF_ITS_RUN = "SELECT team FROM run WHERE run.run_id = substr(trace.run_id, 1, 36)"
_OF_ALL = "SELECT min(team) FROM run HAVING count(DISTINCT team) = 1"


def upgrade() -> None:
    """A trace whose run is gone is that of the site's only team, else nobody's, as ``-``."""
    op.add_column("trace", sa.Column("team", sa.String(), nullable=False, server_default=""))
    op.execute(
        f"UPDATE trace SET team = coalesce(({_OF_ITS_RUN}), ({_OF_ALL}), '-') "  # noqa: S608
        "WHERE source = 'site'"
    )
