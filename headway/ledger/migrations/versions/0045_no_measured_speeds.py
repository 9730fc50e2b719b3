"""No measured speeds of nodes and GPUs, which nothing reads any more

With it the logins of nodes are granted anew what an agent does now: see `headway.ledger.node_logins`.
"""

from alembic import op

revision = "0045"
down_revision = "0044"

_MAY = "(name = 'start_calibration')"


def upgrade() -> None:
    op.execute("DELETE FROM setting WHERE starts_with(name, 'speeds/')")
    op.execute(f"ALTER POLICY added ON setting WITH CHECK {_MAY}")
    op.execute(f"ALTER POLICY changed ON setting USING {_MAY}")
    op.execute(f"ALTER POLICY removed ON setting USING {_MAY}")
