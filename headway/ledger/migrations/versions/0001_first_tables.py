"""The ledger's first tables"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from headway.ledger.columns import UtcDateTime

revision = "0001"
down_revision = None

# SQLite numbers only columns of exactly INTEGER by itself.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_LIVE: dict[str, Any] = dict.fromkeys(
    ("sqlite_where", "postgresql_where"), sa.text("released_at IS NULL")
)


def upgrade() -> None:
    op.create_table(
        "node",
        sa.Column("name", sa.String(length=63), primary_key=True),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_reason", sa.String(), nullable=False),
        sa.Column("cpus", sa.Float(), nullable=False),
        sa.Column("host_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.Column("reserve_cpus", sa.Float(), nullable=False),
        sa.Column("reserve_host_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("price_per_hour", sa.Float(), nullable=False),
        sa.Column("gpu_price_per_hour", sa.Float(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("worker_token", sa.String(), nullable=False),
        sa.Column("heartbeat_at", UtcDateTime(), nullable=False),
        sa.Column("reading", sa.JSON(), nullable=True),
        sa.CheckConstraint("state IN ('ready', 'draining', 'lost')", name="state_known"),
        sa.CheckConstraint("cpus > 0", name="cpus_positive"),
        sa.CheckConstraint("host_memory_bytes > 0", name="host_memory_positive"),
        sa.CheckConstraint("price_per_hour >= 0 AND gpu_price_per_hour >= 0", name="prices"),
        sa.CheckConstraint(
            "reserve_cpus >= 0 AND reserve_host_memory_bytes >= 0 AND reserve_host_memory_bytes <= host_memory_bytes",
            name="reserve_within_capacity",
        ),
    )
    op.create_table(
        "setting",
        sa.Column("name", sa.String(length=128), primary_key=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
    )
    op.create_table(
        "staged",
        sa.Column("node", sa.String(length=63), primary_key=True),
        sa.Column("key", sa.String(length=64), primary_key=True),
        sa.Column("uri", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("used_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("size_bytes >= 0", name="staged_size_not_negative"),
    )
    op.create_table(
        "staged_use",
        sa.Column("node", sa.String(length=63), primary_key=True),
        sa.Column("key", sa.String(length=64), primary_key=True),
        sa.Column("run_id", sa.String(length=36), primary_key=True),
    )
    op.create_table(
        "trace",
        sa.Column("trace_id", _ID, autoincrement=True, primary_key=True),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("network", sa.String(), nullable=False),
        sa.Column("gpu_type", sa.String(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("exit", sa.String(), nullable=False),
        sa.Column("recorded_at", UtcDateTime(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.CheckConstraint("exit IN ('ok', 'oom', 'failed')", name="trace_exit_known"),
        sa.CheckConstraint("gpus >= 0", name="gpus_at_least_0"),
        sa.UniqueConstraint("run_id"),
    )
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(length=36), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column(
            "preempted_for", sa.String(length=36), sa.ForeignKey("run.run_id"), nullable=True
        ),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("job", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("resource", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("expected_start_at", UtcDateTime(), nullable=True),
        sa.Column("node", sa.String(length=63), sa.ForeignKey("node.name"), nullable=True),
        sa.Column("runtime", sa.String(), nullable=True),
        sa.Column("container", sa.String(), nullable=True),
        sa.Column("submitted_at", UtcDateTime(), nullable=False),
        sa.Column("claimed_at", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("exit_kind", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_message", sa.String(), nullable=False),
        sa.Column("prediction", sa.JSON(), nullable=True),
        sa.Column("demand", sa.JSON(), nullable=True),
        sa.Column("demand_override", sa.JSON(), nullable=True),
        sa.Column("measurement", sa.JSON(), nullable=True),
        sa.CheckConstraint("(state = 'ended') = (ended_at IS NOT NULL)", name="ended_has_its_time"),
        sa.CheckConstraint(
            "exit_kind IS NULL OR exit_kind IN ('ok', 'failed', 'out_of_memory', 'gpu_out_of_memory', 'timed_out', 'cancelled', 'infrastructure', 'preempted', 'refused')",
            name="exit_kind_known",
        ),
        sa.CheckConstraint(
            "resource IS NULL OR resource IN ('host_memory', 'cpus', 'gpus', 'gpu_memory', 'ports', 'node', 'quota', 'turn')",
            name="resource_known",
        ),
        sa.CheckConstraint("state <> 'ended' OR exit_kind IS NOT NULL", name="ended_has_its_exit"),
        sa.CheckConstraint(
            "state IN ('waiting', 'claimed', 'running', 'ended')", name="state_known"
        ),
        sa.CheckConstraint(
            "state NOT IN ('claimed', 'running') OR node IS NOT NULL", name="granted_has_its_node"
        ),
        sa.CheckConstraint("attempt >= 1", name="attempt_at_least_1"),
        sa.CheckConstraint("preemptions BETWEEN 0 AND attempt", name="preemptions_are_attempts"),
    )
    op.create_index("run_by_state", "run", ["state", "pool"])

    op.create_table(
        "lease",
        sa.Column("lease_id", _ID, autoincrement=True, primary_key=True),
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=63), sa.ForeignKey("node.name"), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("host_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("cpus", sa.Float(), nullable=False),
        sa.Column("granted_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("predicted_end_at", UtcDateTime(), nullable=True),
        sa.Column("released_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("attempt >= 1", name="lease_attempt_at_least_1"),
        sa.CheckConstraint("cpus > 0", name="lease_cpus_positive"),
        sa.CheckConstraint("host_memory_bytes > 0", name="lease_memory_positive"),
    )
    op.create_index("live_leases_of_node", "lease", ["node"], **_LIVE)
    op.create_index("one_live_lease_per_run", "lease", ["run_id"], unique=True, **_LIVE)

    op.create_table(
        "progress",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("t_s", sa.Float(), nullable=False),
        sa.Column("iteration", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.Float(), nullable=True),
        sa.Column("total", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.CheckConstraint("number >= 0", name="number_at_least_0"),
    )
    op.create_table(
        "step",
        sa.Column("run_id", sa.String(length=36), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('running', 'done', 'failed')", name="state_known"),
    )
    op.create_table(
        "lease_gpu",
        sa.Column("lease_id", _ID, sa.ForeignKey("lease.lease_id"), primary_key=True),
        sa.Column("uuid", sa.String(length=96), primary_key=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sharing", sa.String(), nullable=False),
        sa.Column("utilisation_frac", sa.Float(), nullable=False),
        sa.CheckConstraint("sharing IN ('shared', 'whole')", name="sharing_known"),
        sa.CheckConstraint("memory_bytes >= 0", name="gpu_memory_not_negative"),
        sa.CheckConstraint("utilisation_frac >= 0", name="utilisation_not_negative"),
    )
    op.create_table(
        "lease_port",
        sa.Column("lease_id", _ID, sa.ForeignKey("lease.lease_id"), primary_key=True),
        sa.Column("port", sa.Integer(), primary_key=True),
        sa.Column("node", sa.String(), nullable=False),
        sa.CheckConstraint("port BETWEEN 1024 AND 65535", name="port_in_range"),
        sa.UniqueConstraint("node", "port", name="one_lease_per_port"),
    )
