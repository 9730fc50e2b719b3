"""Who schedules each pool, in which term"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.create_table(
        "leader",
        sa.Column("pool", sa.String(), primary_key=True),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    # Who was first in the queue was announced to the other workers here.
    op.execute("DELETE FROM setting WHERE name LIKE 'front_of_the_queue/%'")
