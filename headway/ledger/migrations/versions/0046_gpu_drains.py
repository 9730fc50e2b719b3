"""GPUs that take no runs, with the reason, and no grant on one of them"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    op.add_column(
        "node", sa.Column("gpu_drains", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    )
    op.create_check_constraint(
        "drained_for_a_reason",
        "node",
        "NOT jsonb_path_exists(CAST(gpu_drains AS jsonb), "
        "'$.* ? (!(exists (@.why.* ? (@ != \"\"))))')",
    )
    # Whoever drains a GPU and whoever grants one hold the row of its node.
    op.execute(
        "CREATE FUNCTION refuse_drained_gpu() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF EXISTS (SELECT FROM lease JOIN node ON node.name = lease.node "
        "WHERE lease.lease_id = NEW.lease_id "
        "AND jsonb_exists(CAST(node.gpu_drains AS jsonb), NEW.uuid)) THEN "
        "RAISE EXCEPTION 'GPU % takes no runs', NEW.uuid USING ERRCODE = 'check_violation'; "
        "END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER no_grant_on_a_drained_gpu BEFORE INSERT ON lease_gpu "
        "FOR EACH ROW EXECUTE FUNCTION refuse_drained_gpu()"
    )
