"""The ledger's tables. What must never be is forbidden here, not only in code.

`SQLModel(table=True)` validates nothing on its own (measured), so every
number and every enumeration has a CHECK constraint.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from headway.ledger.columns import (
    ID,
    EnumWord,
    UtcDateTime,
    at_least,
    by_name,
    one_of,
    plain,
    value,
    word,
)
from headway.model.gpu_health import GpuDrain
from headway.model.lease import Demand, Resource, Sharing
from headway.model.node import Gpu, NodePorts, NodeReading, NodeState
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, StepState, When

_EXIT_KIND: Any = EnumWord(ExitKind)
_LIVE: Any = {"postgresql_where": text("released_at IS NULL")}
_WITH_ROWS: Any = {"postgresql_where": text("rows_removed_at IS NULL")}


class _WithExit(SQLModel):
    """How an attempt ended, in three columns."""

    exit_kind: ExitKind | None = Field(default=None, sa_type=_EXIT_KIND)
    exit_code: int | None = None
    exit_message: str = ""

    def end(self, exit_: Exit) -> None:
        """It ended so."""
        self.exit_kind, self.exit_code, self.exit_message = exit_.kind, exit_.code, exit_.message

    def exit(self) -> Exit | None:
        """How it ended; None while it goes on."""
        if self.exit_kind is None:
            return None
        return Exit(self.exit_kind, self.exit_code, self.exit_message)


class NodeRow(SQLModel, table=True):
    """One machine of the site. Its row is the lock under which it grants."""

    __tablename__ = "node"
    __table_args__ = (
        one_of("state", NodeState),
        CheckConstraint("cpus > 0", name="cpus_positive"),
        CheckConstraint("host_memory_bytes > 0", name="host_memory_positive"),
        CheckConstraint(
            "reserve_cpus >= 0 AND reserve_host_memory_bytes >= 0 "
            "AND reserve_host_memory_bytes <= host_memory_bytes",
            name="reserve_within_capacity",
        ),
        CheckConstraint("price_per_hour >= 0 AND gpu_price_per_hour >= 0", name="prices"),
        CheckConstraint(
            "NOT jsonb_path_exists(CAST(gpu_drains AS jsonb), "
            "'$.* ? (!(exists (@.why.* ? (@ != \"\"))))')",
            name="drained_for_a_reason",
        ),
    )
    name: str = Field(primary_key=True, max_length=63)
    pool: str
    state: NodeState = word(NodeState)
    state_reason: str = ""
    cpus: float
    host_memory_bytes: int = Field(sa_type=BigInteger)
    gpus: tuple[Gpu, ...] = value(tuple[Gpu, ...], nullable=False)
    reserve_cpus: float
    reserve_host_memory_bytes: int = Field(sa_type=BigInteger)
    price_per_hour: float = 0.0
    gpu_price_per_hour: float = 0.0
    boot_id: str
    identity: str = ""
    """The id that the node keeps in its home; empty for one of a version before."""
    worker_token: str
    """The digest of its worker's token. Other nodes sign with it when they ask for data sets."""
    heartbeat_at: datetime = Field(sa_type=UtcDateTime)
    reading: NodeReading | None = value(NodeReading)
    removed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Since when it is no node any more; its row stays for the runs that it had."""
    files_url: str = ""
    """Where its worker serves the files of its runs; empty while it does not."""
    files_certificate: str = ""
    """The one that it shows there, as PEM; empty where it shows none."""
    ports: NodePorts | None = value(NodePorts)
    gpu_drains: Mapping[str, GpuDrain] | None = by_name(GpuDrain)
    """The database refuses a grant on one of these: see migration 0046."""


class NodeKeyRow(SQLModel, table=True):
    """The token of a node's worker, by which it knows the gateway: no other node's to read."""

    __tablename__ = "node_key"
    node: str = Field(primary_key=True, max_length=63, foreign_key="node.name")
    key: str


class RunRow(_WithExit, table=True):
    """One run, from its place in the queue to its exit."""

    __tablename__ = "run"
    __table_args__ = (
        one_of("state", RunState),
        one_of("exit_kind", ExitKind, "exit_kind_known"),
        one_of("resource", Resource, "resource_known"),
        at_least("attempt", 1),
        CheckConstraint("preemptions BETWEEN 0 AND attempt", name="preemptions_are_attempts"),
        CheckConstraint("(state = 'ended') = (ended_at IS NOT NULL)", name="ended_has_its_time"),
        CheckConstraint("state <> 'ended' OR exit_kind IS NOT NULL", name="ended_has_its_exit"),
        CheckConstraint(
            "state NOT IN ('claimed', 'running') OR node IS NOT NULL", name="granted_has_its_node"
        ),
        Index("run_by_state", "state", "pool"),
        Index("run_by_end", "ended_at"),
        Index("run_by_submission", "submitted_at", "run_id"),
        Index("run_by_told_end", "state", "told_end_at"),
        Index("run_with_its_rows", "ended_at", **_WITH_ROWS),
        CheckConstraint("(gang_id IS NULL) = (gang_rank = 0)", name="only_ranks_have_a_gang"),
        Index("one_run_per_rank", "gang_id", "attempt", "gang_rank", unique=True),
        CheckConstraint("(array_id IS NULL) = (array_index IS NULL)", name="members_have_an_index"),
        Index("one_run_per_member", "array_id", "array_index", unique=True),
    )
    run_id: str = Field(primary_key=True, max_length=36)
    name: str
    owner: str
    team: str
    pool: str
    queue: str = ""
    """The work queue it came through; one with a node's name binds it to that node."""
    priority: int = 0
    tag: float | None = None
    """Its place in the order of the queue: see `policy.order`."""
    promised_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """By when it was promised to start."""
    preempted_for: str | None = Field(default=None, max_length=36, foreign_key="run.run_id")
    """The run of a higher priority that this attempt is being stopped for."""
    preemptions: int = 0
    """Attempts that ended so; they do not count against its retries."""
    gang_id: str | None = Field(default=None, max_length=36, foreign_key="run.run_id")
    """The run whose part on another node this is; None for a run of its own."""
    gang_rank: int = 0
    """Which part: 1, 2, …; the run itself is rank 0."""
    ready_attempt: int | None = None
    """Of a part of a gang: the attempt whose data and image are on its node."""
    place: str | None = None
    """Where the others of that attempt reach its container, as ``ADDRESS:PORT``."""
    array_id: str | None = Field(default=None, max_length=36)
    """The array that it is a member of; None for a run of its own."""
    array_index: int | None = None
    """Which member: 1, 2, …"""
    after_run_id: str | None = Field(default=None, max_length=63)
    """The run whose end it waits for, as its job says; see `policy.after`."""
    after_when: When | None = word(When, nullable=True)
    job: dict[str, Any] = plain(has_empty=True, nullable=False)
    state: RunState = word(RunState)
    attempt: int = 1
    resource: Resource | None = word(Resource, nullable=True)
    reason: str = ""
    expected_start_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    queue_version: int = Field(default=0, sa_type=BigInteger, index=True)
    """The transaction that last changed its place in the queue: a trigger writes it."""
    node: str | None = Field(default=None, max_length=63, foreign_key="node.name")
    runtime: str | None = None
    container: str | None = None
    submitted_at: datetime = Field(sa_type=UtcDateTime)
    claimed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    told_end_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """When Prefect acknowledged how it ended; None while that is still to be told."""
    rows_removed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Since when only what usage needs is kept of it; see `ledger.old_runs`."""
    suspended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Since when it waits for its user to resume it."""
    flow_starts: int = 0
    """Flow processes that were started for it since `flow_starts_since`."""
    flow_starts_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    prediction: Prediction | None = value(Prediction)
    demand: Demand | None = value(Demand)
    demand_override: dict[str, Any] | None = plain(has_empty=False)
    measurement: Measurement | None = value(Measurement)


class GangAskRow(SQLModel, table=True):
    """A command that one part of a gang asks another one to run."""

    __tablename__ = "gang_ask"
    __table_args__ = (
        Index("one_ask_of_a_name", "gang_id", "attempt", "from_rank", "name", unique=True),
    )
    ask_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    gang_id: str = Field(max_length=36, foreign_key="run.run_id")
    attempt: int
    from_rank: int
    name: str
    to_rank: int
    command: str
    exit_code: int | None = None


class LeaseRow(SQLModel, table=True):
    """A grant. Counts until it is released, expired or not."""

    __tablename__ = "lease"
    __table_args__ = (
        CheckConstraint("host_memory_bytes > 0", name="lease_memory_positive"),
        CheckConstraint("cpus > 0", name="lease_cpus_positive"),
        at_least("attempt", 1, "lease_attempt_at_least_1"),
        at_least("gang_rank", 0, "lease_rank_not_negative"),
        at_least("disk_bytes", 0, "lease_disk_not_negative"),
        Index("one_live_lease_per_rank", "run_id", "gang_rank", unique=True, **_LIVE),
        Index("live_leases_of_node", "node", **_LIVE),
        Index("leases_of_node_by_end", "node", "released_at"),
    )
    lease_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    run_id: str = Field(max_length=36, foreign_key="run.run_id")
    gang_rank: int = 0
    """Above 0: held for a part of the run on another node, which has not begun there yet."""
    attempt: int
    node: str = Field(max_length=63, foreign_key="node.name")
    term: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """In which its pool's leader granted it, else the database refuses it; 0 of versions before."""
    token: str
    host_memory_bytes: int = Field(sa_type=BigInteger)
    cpus: float
    disk_bytes: int = Field(0, sa_type=BigInteger)
    granted_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    start_by: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Until then a flow process has to take the claim up; None once one has."""
    lent: bool = False
    """Nothing reads it but guards of versions that lent idle memory, which go on until their node
    is upgraded: it goes with the next version, as the last three columns of `StagingRow` do."""
    predicted_end_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    released_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class LeaseGpuRow(SQLModel, table=True):
    """What a lease holds of one GPU."""

    __tablename__ = "lease_gpu"
    __table_args__ = (
        one_of("sharing", Sharing),
        CheckConstraint("memory_bytes >= 0", name="gpu_memory_not_negative"),
        CheckConstraint("utilisation_frac >= 0", name="utilisation_not_negative"),
    )
    lease_id: int = Field(sa_type=ID, primary_key=True, foreign_key="lease.lease_id")
    uuid: str = Field(primary_key=True, max_length=96)
    memory_bytes: int = Field(sa_type=BigInteger)
    sharing: Sharing = word(Sharing)
    utilisation_frac: float = 1.0


class LeasePortRow(SQLModel, table=True):
    """A port of a node while a live lease holds it; the row goes with the release."""

    __tablename__ = "lease_port"
    __table_args__ = (
        CheckConstraint("port BETWEEN 1024 AND 65535", name="port_in_range"),
        UniqueConstraint("node", "port", name="one_lease_per_port"),
    )
    lease_id: int = Field(sa_type=ID, primary_key=True, foreign_key="lease.lease_id")
    port: int = Field(primary_key=True)
    node: str
    program_port: int = 0
    """The same as the run's program has it."""


class StepRow(SQLModel, table=True):
    """One step of one attempt."""

    __tablename__ = "step"
    __table_args__ = (one_of("state", StepState),)
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int = Field(primary_key=True)
    name: str = Field(primary_key=True)
    state: StepState = word(StepState)
    started_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    message: str = ""


class AttemptRow(_WithExit, table=True):
    """What is kept of one attempt: the run's own row has only the newest one's."""

    __tablename__ = "attempt"
    __table_args__ = (
        at_least("attempt", 1, "attempt_number_at_least_1"),
        one_of("exit_kind", ExitKind, "attempt_exit_known"),
        CheckConstraint(
            "(ended_at IS NULL) = (exit_kind IS NULL)", name="attempt_ends_with_its_exit"
        ),
    )
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int = Field(primary_key=True)
    node: str | None = None
    resource: Resource | None = word(Resource, nullable=True)
    reason: str = ""
    claimed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    prediction: Prediction | None = value(Prediction)
    demand: Demand | None = value(Demand)
    measurement: Measurement | None = value(Measurement)


class StoredRow(SQLModel, table=True):
    """What one node had of an ended run and is in the site's store, whole and checked."""

    __tablename__ = "stored"
    __table_args__ = (
        CheckConstraint("size_bytes >= 0 AND files >= 0", name="stored_size_not_negative"),
    )
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int = Field(primary_key=True)
    """The last one on that node: its earlier ones there are in it."""
    key: str
    """Where in the store; empty where there was nothing to bring there."""
    files: int
    size_bytes: int = Field(sa_type=BigInteger)
    stored_at: datetime = Field(sa_type=UtcDateTime)
    removed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Since when it is not there any more."""
    note: str = ""
    """What of it was not brought there, and why; empty where all was."""


class StagedRow(SQLModel, table=True):
    """A data set in the cache of one node."""

    __tablename__ = "staged"
    __table_args__ = (CheckConstraint("size_bytes >= 0", name="staged_size_not_negative"),)
    node: str = Field(primary_key=True, max_length=63)
    key: str = Field(primary_key=True, max_length=64)
    uri: str
    size_bytes: int = Field(sa_type=BigInteger)
    sha256: str
    used_at: datetime = Field(sa_type=UtcDateTime)


class StagedUseRow(SQLModel, table=True):
    """A run's claim on a staged data set: it may not be evicted meanwhile."""

    __tablename__ = "staged_use"
    node: str = Field(primary_key=True, max_length=63)
    key: str = Field(primary_key=True, max_length=64)
    run_id: str = Field(primary_key=True, max_length=36)


class StagingRow(SQLModel, table=True):
    """How a data set came to the node of an attempt: copied, or there already."""

    __tablename__ = "staging"
    __table_args__ = (
        CheckConstraint("size_bytes >= 0", name="staging_size_not_negative"),
        Index("staging_by_node", "node"),
    )
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int = Field(primary_key=True)
    name: str = Field(primary_key=True, max_length=63)
    node: str = Field(max_length=63)
    uri: str
    size_bytes: int = Field(sa_type=BigInteger)
    took_s: float
    was_there: bool
    listing: str = Field(default="", sa_column_kwargs={"server_default": ""})
    from_nodes: str = Field(default="", sa_column_kwargs={"server_default": ""})
    peer_bytes: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})


class LeaderRow(SQLModel, table=True):
    """Who schedules a pool, in which term."""

    __tablename__ = "leader"
    pool: str = Field(primary_key=True)
    term: int = Field(sa_type=BigInteger)
    node: str
    holder: str
    expires_at: datetime = Field(sa_type=UtcDateTime)


class SettingRow(SQLModel, table=True):
    """What an operator set in a block: the newest document for each name."""

    __tablename__ = "setting"
    name: str = Field(primary_key=True, max_length=128)
    document: dict[str, Any] | None = plain(has_empty=False, nullable=False)
    updated_at: datetime = Field(sa_type=UtcDateTime)
