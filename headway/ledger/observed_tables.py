"""The ledger's tables of what was observed: progress, warnings, traces, telemetry."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, text
from sqlmodel import Field, SQLModel

from headway.ledger.columns import ID, EnumWord, UtcDateTime, at_least, one_of, plain, value
from headway.model.notice import NoticeKind
from headway.model.run_warning import Silent
from headway.model.trace import Trace

_NOTICE_KIND: Any = EnumWord(NoticeKind, 16)


class WarningRow(SQLModel, table=True):
    """A silent failure of one attempt on one GPU: when it began last, and whether it is over."""

    __tablename__ = "warning"
    __table_args__ = (one_of("kind", Silent),)
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int = Field(primary_key=True)
    kind: Silent = Field(sa_column=Column(EnumWord(Silent, 16), primary_key=True))
    gpu: str = Field(primary_key=True, max_length=96)
    began_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    stopped_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    measured: float
    limit: float
    text: str


class StartForecastRow(SQLModel, table=True):
    """What was said of when one waiting run starts, at one moment, and when it did."""

    __tablename__ = "start_forecast"
    __table_args__ = (
        at_least("gpus", 0),
        at_least("ahead", 0),
        at_least("planned_s", 0),
        Index("start_forecast_by_start", "started_at", "said_at"),
    )
    run_id: str = Field(primary_key=True, max_length=36)
    said_at: datetime = Field(sa_type=UtcDateTime, primary_key=True)
    planned_s: float
    planned_low_s: float = 0.0
    planned_high_s: float = 0.0
    earliest_at: datetime = Field(sa_type=UtcDateTime)
    expected_at: datetime = Field(sa_type=UtcDateTime)
    latest_at: datetime = Field(sa_type=UtcDateTime)
    gpus: int
    ahead: int
    at_submission: bool
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ProgressSnapshotRow(SQLModel, table=True):
    """How far a run's newest attempt is: one row a run, written every few seconds."""

    __tablename__ = "standing"
    __table_args__ = (
        CheckConstraint("done_frac BETWEEN 0 AND 1", name="standing_share"),
        CheckConstraint("remaining_s >= 0", name="standing_remaining_not_negative"),
        at_least("per_s", 0),
    )
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int
    at: datetime = Field(sa_type=UtcDateTime)
    elapsed_s: float
    done_frac: float | None = None
    remaining_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    phase: str = ""
    iteration: int | None = Field(default=None, sa_type=BigInteger)
    epoch: float | None = None
    total: int | None = Field(default=None, sa_type=BigInteger)
    per_s: float | None = None


class ProgressRow(SQLModel, table=True):
    """One progress point, numbered within its attempt."""

    __tablename__ = "progress"
    __table_args__ = (at_least("number", 0),)
    run_id: str = Field(primary_key=True, max_length=36, foreign_key="run.run_id")
    attempt: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    t_s: float
    iteration: int | None = Field(default=None, sa_type=BigInteger)
    epoch: float | None = None
    total: int | None = Field(default=None, sa_type=BigInteger)
    metrics: dict[str, float] = plain(has_empty=True, nullable=False)


class TraceRow(SQLModel, table=True):
    """One finished run or imported measurement, from which estimators learn."""

    __tablename__ = "trace"
    __table_args__ = (
        CheckConstraint("exit IN ('ok', 'oom', 'failed')", name="trace_exit_known"),
        at_least("gpus", 0),
    )
    trace_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    run_id: str | None = Field(default=None, max_length=64, unique=True)
    source: str
    team: str
    network: str
    gpu_type: str
    gpus: int
    exit: str
    recorded_at: datetime = Field(sa_type=UtcDateTime)
    document: Trace | None = value(Trace, nullable=False)


class TelemetryRow(SQLModel, table=True):
    """A node's host (`gpu` empty) or one of its GPUs over one period."""

    __tablename__ = "telemetry"
    __table_args__ = (
        CheckConstraint("period_s IN (1, 60)", name="telemetry_period_known"),
        CheckConstraint("used_bytes >= 0", name="telemetry_used_not_negative"),
        Index("telemetry_by_time", "node", "period_s", "at"),
    )
    point_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    node: str = Field(max_length=63)
    gpu: str = Field(max_length=96)
    period_s: int
    at: datetime = Field(sa_type=UtcDateTime)
    used_bytes: int | None = Field(default=None, sa_type=BigInteger)
    busy_frac: float | None = None
    disk_free_bytes: int | None = Field(default=None, sa_type=BigInteger)
    temperature_c: float | None = None
    power_w: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    sm_frac: float | None = None
    tensor_frac: float | None = None
    bandwidth_frac: float | None = None
    clock_frac: float | None = None
    power_limited_frac: float | None = None
    heat_limited_frac: float | None = None
    run_bytes: dict[str, int] = plain(has_empty=True, nullable=False)


class NoticeRow(SQLModel, table=True):
    """What a person is to be told of a run or an array, and by which block."""

    __tablename__ = "notice"
    __table_args__ = (
        one_of("kind", NoticeKind),
        CheckConstraint("(run_id IS NULL) <> (array_id IS NULL)", name="notice_of_one"),
        Index("notice_by_run", "run_id"),
        Index("notice_untaken", "notice_id", postgresql_where=text("taken_at IS NULL")),
    )
    notice_id: int | None = Field(default=None, sa_type=ID, primary_key=True)
    run_id: str | None = Field(default=None, foreign_key="run.run_id", max_length=36)
    array_id: str | None = Field(default=None, foreign_key="job_array.array_id", max_length=36)
    kind: NoticeKind = Field(sa_type=_NOTICE_KIND)
    block: str
    made_at: datetime = Field(sa_type=UtcDateTime)
    taken_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    error: str = ""
