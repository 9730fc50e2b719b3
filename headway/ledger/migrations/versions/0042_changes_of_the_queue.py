"""A run carries the number of the transaction that last changed its place in the queue"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    op.add_column(
        "run", sa.Column("queue_version", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.create_index("ix_run_queue_version", "run", ["queue_version"])
    op.execute(
        "CREATE FUNCTION number_change_of_queue() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN "
        "NEW.queue_version := pg_current_xact_id()::text::bigint; "
        "RETURN NEW; "
        "END $$"
    )
    op.execute(
        "CREATE TRIGGER run_changes_in_the_queue BEFORE INSERT OR UPDATE OF "
        "state, pool, attempt, demand, suspended_at, tag, promised_at ON run "
        "FOR EACH ROW EXECUTE FUNCTION number_change_of_queue()"
    )
