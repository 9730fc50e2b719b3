"""The ledger's tables. What must never be is forbidden here, not only in code.

`SQLModel(table=True)` validates nothing on its own (measured), so every
number and every enumeration has a CHECK constraint.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    UniqueConstraint,
    text,
)
from sqlmodel import Field, SQLModel

from headway.ledger.columns import UtcDateTime
from headway.model.lease import Resource, Sharing
from headway.model.node import NodeState
from headway.model.run import ExitKind, RunState, StepState
from headway.model.silent import Silent

# SQLite numbers only columns of exactly INTEGER by itself.
_Id = BigInteger().with_variant(Integer, "sqlite")


def _one_of(column: str, values: type) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)  # type: ignore[attr-defined]
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def _at_least(column: str, least: int, name: str | None = None) -> CheckConstraint:
    return CheckConstraint(f"{column} >= {least}", name=name or f"{column}_at_least_{least}")


def _time(*, nullable: bool = True) -> Any:
    return Field(default=None, sa_column=Column(UtcDateTime(), nullable=nullable))


def _json(*, nullable: bool = True) -> Any:
    return Field(default=None, sa_column=Column(JSON, nullable=nullable))


class NodeRow(SQLModel, table=True):
    """One machine of the site. Its row is the lock under which it grants."""

    __tablename__ = "node"
    __table_args__ = (
        _one_of("state", NodeState),
        CheckConstraint("cpus > 0", name="cpus_positive"),
        CheckConstraint("host_memory_bytes > 0", name="host_memory_positive"),
        CheckConstraint(
            "reserve_cpus >= 0 AND reserve_host_memory_bytes >= 0 "
            "AND reserve_host_memory_bytes <= host_memory_bytes",
            name="reserve_within_capacity",
        ),
        CheckConstraint("price_per_hour >= 0 AND gpu_price_per_hour >= 0", name="prices"),
    )
    name: str = Field(sa_column=Column(String(63), primary_key=True))
    pool: str
    state: str
    state_reason: str = ""
    cpus: float = Field(sa_column=Column(Float, nullable=False))
    host_memory_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    gpus: Any = _json(nullable=False)
    reserve_cpus: float = Field(sa_column=Column(Float, nullable=False))
    reserve_host_memory_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    price_per_hour: float = 0.0
    gpu_price_per_hour: float = 0.0
    boot_id: str
    worker_token: str
    heartbeat_at: datetime = _time(nullable=False)
    reading: Any = _json()
    removed_at: datetime | None = _time()
    """Since when it is no node any more; its row stays for the runs that it had."""


class RunRow(SQLModel, table=True):
    """One run, from its place in the line to its exit."""

    __tablename__ = "run"
    __table_args__ = (
        _one_of("state", RunState),
        CheckConstraint(
            f"exit_kind IS NULL OR exit_kind IN ({', '.join(repr(k.value) for k in ExitKind)})",
            name="exit_kind_known",
        ),
        CheckConstraint(
            f"resource IS NULL OR resource IN ({', '.join(repr(r.value) for r in Resource)})",
            name="resource_known",
        ),
        _at_least("attempt", 1),
        CheckConstraint("preemptions BETWEEN 0 AND attempt", name="preemptions_are_attempts"),
        CheckConstraint("(state = 'ended') = (ended_at IS NOT NULL)", name="ended_has_its_time"),
        CheckConstraint("state <> 'ended' OR exit_kind IS NOT NULL", name="ended_has_its_exit"),
        CheckConstraint(
            "state NOT IN ('claimed', 'running') OR node IS NOT NULL", name="granted_has_its_node"
        ),
        Index("run_by_state", "state", "pool"),
        Index("run_by_end", "ended_at"),
        CheckConstraint("(gang_id IS NULL) = (gang_rank = 0)", name="only_ranks_have_a_gang"),
        Index("one_run_per_rank", "gang_id", "attempt", "gang_rank", unique=True),
    )
    run_id: str = Field(sa_column=Column(String(36), primary_key=True))
    name: str
    owner: str
    team: str
    pool: str
    queue: str = ""
    """The work queue it came through; one with a node's name binds it to that node."""
    priority: int = 0
    preempted_for: str | None = Field(
        default=None, sa_column=Column(String(36), ForeignKey("run.run_id"), nullable=True)
    )
    """The run of a higher priority that this attempt is being stopped for."""
    preemptions: int = 0
    """Attempts that ended so; they do not count against its retries."""
    gang_id: str | None = Field(
        default=None, sa_column=Column(String(36), ForeignKey("run.run_id"), nullable=True)
    )
    """The run whose part on another node this is; None for a run of its own."""
    gang_rank: int = 0
    """Which part: 1, 2, …; the run itself is rank 0."""
    job: Any = _json(nullable=False)
    state: str
    attempt: int = 1
    resource: str | None = None
    reason: str = ""
    expected_start_at: datetime | None = _time()
    node: str | None = Field(
        default=None, sa_column=Column(String(63), ForeignKey("node.name"), nullable=True)
    )
    runtime: str | None = None
    container: str | None = None
    submitted_at: datetime = _time(nullable=False)
    claimed_at: datetime | None = _time()
    started_at: datetime | None = _time()
    ended_at: datetime | None = _time()
    exit_kind: str | None = None
    exit_code: int | None = None
    exit_message: str = ""
    prediction: Any = _json()
    demand: Any = _json()
    demand_override: Any = _json()
    measurement: Any = _json()


class LeaseRow(SQLModel, table=True):
    """A grant. Counts until it is released, expired or not."""

    __tablename__ = "lease"
    __table_args__ = (
        CheckConstraint("host_memory_bytes > 0", name="lease_memory_positive"),
        CheckConstraint("cpus > 0", name="lease_cpus_positive"),
        _at_least("attempt", 1, "lease_attempt_at_least_1"),
        _at_least("gang_rank", 0, "lease_rank_not_negative"),
        _at_least("disk_bytes", 0, "lease_disk_not_negative"),
        Index(
            "one_live_lease_per_rank",
            "run_id",
            "gang_rank",
            unique=True,
            sqlite_where=text("released_at IS NULL"),
            postgresql_where=text("released_at IS NULL"),
        ),
        Index(
            "live_leases_of_node",
            "node",
            sqlite_where=text("released_at IS NULL"),
            postgresql_where=text("released_at IS NULL"),
        ),
    )
    lease_id: int | None = Field(
        default=None, sa_column=Column(_Id, primary_key=True, autoincrement=True)
    )
    run_id: str = Field(sa_column=Column(String(36), ForeignKey("run.run_id"), nullable=False))
    gang_rank: int = 0
    """Above 0: held for a part of the run on another node, which has not begun there yet."""
    attempt: int
    node: str = Field(sa_column=Column(String(63), ForeignKey("node.name"), nullable=False))
    token: str
    host_memory_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    cpus: float = Field(sa_column=Column(Float, nullable=False))
    disk_bytes: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    granted_at: datetime = _time(nullable=False)
    expires_at: datetime = _time(nullable=False)
    predicted_end_at: datetime | None = _time()
    released_at: datetime | None = _time()


class LeaseGpuRow(SQLModel, table=True):
    """What a lease holds of one GPU."""

    __tablename__ = "lease_gpu"
    __table_args__ = (
        _one_of("sharing", Sharing),
        CheckConstraint("memory_bytes >= 0", name="gpu_memory_not_negative"),
        CheckConstraint("utilisation_frac >= 0", name="utilisation_not_negative"),
    )
    lease_id: int = Field(sa_column=Column(_Id, ForeignKey("lease.lease_id"), primary_key=True))
    uuid: str = Field(sa_column=Column(String(96), primary_key=True))
    memory_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    sharing: str
    utilisation_frac: float = 1.0


class LeasePortRow(SQLModel, table=True):
    """A port of a node while a live lease holds it; the row goes with the release."""

    __tablename__ = "lease_port"
    __table_args__ = (
        CheckConstraint("port BETWEEN 1024 AND 65535", name="port_in_range"),
        UniqueConstraint("node", "port", name="one_lease_per_port"),
    )
    lease_id: int = Field(sa_column=Column(_Id, ForeignKey("lease.lease_id"), primary_key=True))
    port: int = Field(primary_key=True)
    node: str


class StepRow(SQLModel, table=True):
    """One step of one attempt."""

    __tablename__ = "step"
    __table_args__ = (_one_of("state", StepState),)
    run_id: str = Field(sa_column=Column(String(36), ForeignKey("run.run_id"), primary_key=True))
    attempt: int = Field(primary_key=True)
    name: str = Field(primary_key=True)
    state: str
    started_at: datetime = _time(nullable=False)
    ended_at: datetime | None = _time()
    message: str = ""


class AttemptRow(SQLModel, table=True):
    """What is kept of one attempt: the run's own row has only the newest one's."""

    __tablename__ = "attempt"
    __table_args__ = (
        _at_least("attempt", 1, "attempt_number_at_least_1"),
        CheckConstraint(
            f"exit_kind IS NULL OR exit_kind IN ({', '.join(repr(k.value) for k in ExitKind)})",
            name="attempt_exit_known",
        ),
        CheckConstraint(
            "(ended_at IS NULL) = (exit_kind IS NULL)", name="attempt_ends_with_its_exit"
        ),
    )
    run_id: str = Field(sa_column=Column(String(36), ForeignKey("run.run_id"), primary_key=True))
    attempt: int = Field(primary_key=True)
    node: str | None = None
    resource: str | None = None
    reason: str = ""
    claimed_at: datetime | None = _time()
    started_at: datetime | None = _time()
    ended_at: datetime | None = _time()
    exit_kind: str | None = None
    exit_code: int | None = None
    exit_message: str = ""
    prediction: Any = _json()
    demand: Any = _json()
    measurement: Any = _json()


class WarningRow(SQLModel, table=True):
    """A silent failure of one attempt on one GPU: when it began last, and whether it is over."""

    __tablename__ = "warning"
    __table_args__ = (_one_of("kind", Silent),)
    run_id: str = Field(sa_column=Column(String(36), ForeignKey("run.run_id"), primary_key=True))
    attempt: int = Field(primary_key=True)
    kind: str = Field(sa_column=Column(String(16), primary_key=True))
    gpu: str = Field(sa_column=Column(String(96), primary_key=True))
    began_at: datetime = _time(nullable=False)
    ended_at: datetime | None = _time()
    stopped_at: datetime | None = _time()
    measured: float = Field(sa_column=Column(Float, nullable=False))
    limit: float = Field(sa_column=Column(Float, nullable=False))
    text: str


class StandingRow(SQLModel, table=True):
    """How far a run's newest attempt is: one row a run, written every few seconds."""

    __tablename__ = "standing"
    __table_args__ = (
        CheckConstraint("done_frac BETWEEN 0 AND 1", name="standing_share"),
        CheckConstraint("remaining_s >= 0", name="standing_remaining_not_negative"),
    )
    run_id: str = Field(sa_column=Column(String(36), ForeignKey("run.run_id"), primary_key=True))
    attempt: int
    at: datetime = _time(nullable=False)
    elapsed_s: float = Field(sa_column=Column(Float, nullable=False))
    done_frac: float | None = None
    remaining_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None


class ProgressRow(SQLModel, table=True):
    """One progress point, numbered within its attempt."""

    __tablename__ = "progress"
    __table_args__ = (_at_least("number", 0),)
    run_id: str = Field(sa_column=Column(String(36), ForeignKey("run.run_id"), primary_key=True))
    attempt: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    t_s: float
    iteration: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    epoch: float | None = None
    total: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    metrics: Any = _json(nullable=False)


class TraceRow(SQLModel, table=True):
    """One finished run or imported measurement, from which estimators learn."""

    __tablename__ = "trace"
    __table_args__ = (
        CheckConstraint("exit IN ('ok', 'oom', 'failed')", name="trace_exit_known"),
        _at_least("gpus", 0),
    )
    trace_id: int | None = Field(
        default=None, sa_column=Column(_Id, primary_key=True, autoincrement=True)
    )
    run_id: str | None = Field(default=None, sa_column=Column(String(64), unique=True))
    source: str
    network: str
    gpu_type: str
    gpus: int
    exit: str
    recorded_at: datetime = _time(nullable=False)
    document: Any = _json(nullable=False)


class StagedRow(SQLModel, table=True):
    """A data set in the cache of one node."""

    __tablename__ = "staged"
    __table_args__ = (CheckConstraint("size_bytes >= 0", name="staged_size_not_negative"),)
    node: str = Field(sa_column=Column(String(63), primary_key=True))
    key: str = Field(sa_column=Column(String(64), primary_key=True))
    uri: str
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    sha256: str
    used_at: datetime = _time(nullable=False)


class StagedUseRow(SQLModel, table=True):
    """A run's claim on a staged data set: it may not be evicted meanwhile."""

    __tablename__ = "staged_use"
    node: str = Field(sa_column=Column(String(63), primary_key=True))
    key: str = Field(sa_column=Column(String(64), primary_key=True))
    run_id: str = Field(sa_column=Column(String(36), primary_key=True))


class SettingRow(SQLModel, table=True):
    """What an operator set in a block: the newest document for each name."""

    __tablename__ = "setting"
    name: str = Field(sa_column=Column(String(128), primary_key=True))
    document: Any = _json(nullable=False)
    updated_at: datetime = _time(nullable=False)


class TelemetryRow(SQLModel, table=True):
    """A node's host (`gpu` empty) or one of its GPUs over one period."""

    __tablename__ = "telemetry"
    __table_args__ = (
        CheckConstraint("period_s IN (1, 60)", name="telemetry_period_known"),
        CheckConstraint("used_bytes >= 0", name="telemetry_used_not_negative"),
        Index("telemetry_by_time", "node", "period_s", "at"),
    )
    point_id: int | None = Field(
        default=None, sa_column=Column(_Id, primary_key=True, autoincrement=True)
    )
    node: str = Field(sa_column=Column(String(63), nullable=False))
    gpu: str = Field(sa_column=Column(String(96), nullable=False))
    period_s: int
    at: datetime = _time(nullable=False)
    used_bytes: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    busy_frac: float | None = None
    disk_free_bytes: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    temperature_c: float | None = None
    power_w: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    run_bytes: Any = _json(nullable=False)
