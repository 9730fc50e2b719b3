"""What a tracker is told of a run that has ended: what was said before, and what came of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headway.ledger.records import RunRecord
from headway.model.lease import Lease
from headway.model.node import Gpu
from headway.model.notice import RUN_TAG
from headway.model.run import ExitKind, Measurement, Prediction

_QUANTITIES = (
    "runtime_s", "host_peak_bytes", "gpu_peak_bytes", "gpu_utilisation_frac", "cost",
)  # fmt: skip
_STATUSES = {ExitKind.OK: "FINISHED", ExitKind.CANCELLED: "KILLED"}
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as MLflow has it. What is not known is left out."""

    name: str
    experiment: str
    """Its team and the name of its recipe: ``vision/resnet50``."""
    status: str
    started_at: datetime
    """When it was submitted, where it never started."""
    ended_at: datetime
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    """By their names, whose ends are their units."""


def tracked_run(
    record: RunRecord, ended_at: datetime, leases: Sequence[Lease], gpus: Sequence[Gpu]
) -> TrackedRun:
    """What is told of *record*.

    Args:
        record: Of a run that has ended, by its newest attempt.
        ended_at: When.
        leases: Of the run.
        gpus: Those of the node of its newest attempt.
    """
    end, said = record.exit, record.prediction or Prediction(basis="")
    held = {g.uuid for each in leases if each.attempt == record.attempt for g in each.gpus}
    # Those of other nodes of a gang are not among them.
    names = Counter(gpu.name for gpu in gpus if gpu.uuid in held and record.nodes == 1)
    tags = {
        RUN_TAG: record.run_id,
        "headway.owner": record.owner,
        "headway.team": record.team,
        "headway.attempt": str(record.attempt),
        "headway.node": record.node or "",
        "headway.nodes": str(record.nodes) if record.nodes > 1 else "",
        "headway.gpus": ", ".join(f"{count} × {name}" for name, count in names.items()),
        "headway.outcome": end.kind.value if end is not None else "",
        "headway.message": end.message if end is not None else "",
        "headway.predicted_by": said.basis,
    }
    found = record.measurement or Measurement()
    metrics = {f"headway.{name}": getattr(found, name) for name in _QUANTITIES}
    for name in ("runtime_low_s", "runtime_high_s", *_QUANTITIES):
        metrics[f"headway.predicted_{name}"] = getattr(said, name)
    training = record.job.get("training") or {}
    recipe = training.get("network") or record.job.get("name") or record.name
    return TrackedRun(
        name=record.name,
        experiment=f"{record.team}/{recipe}",
        status=_STATUSES.get(end.kind, "FAILED") if end is not None else "FAILED",
        started_at=record.started_at or record.submitted_at,
        ended_at=ended_at,
        tags={name: text[:_LONGEST] for name, text in tags.items() if text},
        metrics={name: float(value) for name, value in metrics.items() if value is not None},
    )
