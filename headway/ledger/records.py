"""What the ledger gives back: frozen records, and how values become JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter

from headway.model.lease import Demand
from headway.model.node import Node, NodeReading
from headway.model.run import Exit, Measurement, Prediction, RunState

T = TypeVar("T")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def to_json(value: object) -> Any:
    """A frozen value as plain data."""
    return _adapter(type(value)).dump_python(value, mode="json")


def from_json(kind: type[T], document: Any) -> T:
    """The value of *kind* that `to_json` wrote."""
    value: T = _adapter(kind).validate_python(document)
    return value


def optional(kind: type[T], document: Any) -> T | None:
    """As `from_json`; None for what was never written."""
    return None if document is None else from_json(kind, document)


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as the ledger knows it."""

    node: Node
    boot_id: str
    worker_token: str
    heartbeat_at: datetime
    reading: NodeReading | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the ledger knows it."""

    run_id: str
    name: str
    owner: str
    team: str
    pool: str
    queue: str
    priority: int
    preempted_for: str | None
    preemptions: int
    job: Mapping[str, Any]
    state: RunState
    attempt: int
    resource: str | None
    reason: str
    expected_start_at: datetime | None
    node: str | None
    runtime: str | None
    container: str | None
    submitted_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit: Exit | None
    prediction: Prediction | None
    demand: Demand | None
    demand_override: Mapping[str, Any] | None
    measurement: Measurement | None
    gang_id: str | None = None
    """The run whose part on another node this is."""
    gang_rank: int = 0
