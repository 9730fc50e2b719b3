"""How runs and nodes are shown: plain data with documented keys, for people and for machines."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from headway.estimate.remaining.diagnostics import Diagnostics
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.attempt import AttemptRecord
from headway.model.lease import Demand, Lease, Sharing
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, Step
from headway.model.silent import RunWarning
from headway.policy.outlook import around
from headway.policy.plan import Start, Stay
from headway.prefect.client import FlowRun
from headway.units import format_duration, format_size

_STATE_NAMES = {
    RunState.WAITING: "AwaitingHeadroom",
    RunState.CLAIMED: "Pending",
    RunState.RUNNING: "Running",
}
_END_NAMES = {
    ExitKind.OK: "Completed",
    ExitKind.CANCELLED: "Cancelled",
    ExitKind.TIMED_OUT: "TimedOut",
}


def run_view(
    seen: FlowRun,
    record: RunRecord | None,
    ui_url: str,
    progress: Mapping[str, float | None] | None = None,
) -> dict[str, Any]:
    """One run as `headway runs --json` lists it.

    Prefect knows every run from its creation; the ledger knows more from the
    moment a worker has seen it. *progress* is that of a run that runs: `elapsed_s`,
    `done_frac`, `remaining_s`.
    """
    shown = progress or {}
    return {
        "run_id": seen.run_id,
        "name": seen.name,
        "owner": owner_of(seen, record) or None,
        "state": seen.state_name,
        "reason": _reason(seen, record),
        "node": record.node if record else None,
        "runtime": record.runtime if record else None,
        "attempt": record.attempt if record else 1,
        "exit": _exit(record),
        "submitted_at": seen.created_at,
        "started_at": _time(record.started_at if record else None),
        "ended_at": _time(record.ended_at if record else None),
        "duration_s": shown.get("elapsed_s", _lasted_s(record)),
        "done_frac": shown.get("done_frac"),
        "remaining_s": shown.get("remaining_s"),
        "url": f"{ui_url}/runs/flow-run/{seen.run_id}",
    }


def owner_of(seen: FlowRun, record: RunRecord | None) -> str:
    """Whose run it is; empty where nobody has said so."""
    if record is not None:
        return record.owner
    job = seen.parameters.get("job")
    return str(job.get("owner") or "") if isinstance(job, Mapping) else ""


def _lasted_s(record: RunRecord | None) -> float | None:
    """How long the newest attempt of a run that has ended ran."""
    if record is None or record.started_at is None or record.ended_at is None:
        return None
    return max((record.ended_at - record.started_at).total_seconds(), 0.0)


def _reason(seen: FlowRun, record: RunRecord | None) -> str:
    # A run that was cancelled in line waits no more, though no worker has noted it yet.
    if record is not None and record.state is RunState.WAITING and not is_over(seen):
        return record.reason or seen.message
    return seen.message


def _exit(record: RunRecord | None) -> dict[str, Any] | None:
    return None if record is None else _ended(record.exit)


def _ended(end: Exit | None) -> dict[str, Any] | None:
    if end is None:
        return None
    return {"kind": end.kind.value, "code": end.code, "message": end.message}


def ledger_state(record: RunRecord) -> str:
    """The state's name as Prefect would show it, for when Prefect is away."""
    if record.state is RunState.ENDED and record.exit is not None:
        return _END_NAMES.get(record.exit.kind, "Failed")
    return _STATE_NAMES.get(record.state, record.state.value)


def run_details(
    record: RunRecord,
    *,
    steps: Iterable[Step],
    lease: Lease | None,
    latest: ProgressPoint | None,
    remaining_s: float | None,
    outputs: Iterable[str] | None,
    ranks: Iterable[RunRecord],
    warnings: Iterable[RunWarning],
    attempts: Iterable[AttemptRecord],
) -> dict[str, Any]:
    """What `headway show --json` adds to `run_view`."""
    demand = record.demand
    return {
        "job": dict(record.job),
        "owner": record.owner or None,
        "team": record.team,
        "steps": [_step(step) for step in steps],
        "demand": None
        if demand is None
        else {
            "host_memory_bytes": demand.host_memory_bytes,
            "host_memory_basis": demand.host_memory_basis.value,
            "cpus": demand.cpus,
            "gpus": demand.gpus,
            "gpu_memory_bytes": demand.gpu_memory_bytes,
        },
        "lease": None if lease is None else _lease(lease),
        "predicted": _predicted(record.prediction or Prediction()),
        "measured": _quantities(record.measurement or Measurement()),
        "progress": {
            "iteration": latest.iteration if latest else None,
            "epoch": latest.epoch if latest else None,
            "total": latest.total if latest else None,
            "metrics": dict(latest.metrics) if latest else {},
            "remaining_s": remaining_s,
        },
        "outputs": None if outputs is None else list(outputs),
        "gang": record.gang_id,
        "ranks": [
            {
                "rank": rank.gang_rank,
                "run_id": rank.run_id,
                "node": rank.node,
                "state": ledger_state(rank),
                "exit": _exit(rank),
            }
            for rank in ranks
        ],
        "warnings": [warning_view(each) for each in warnings],
        "attempts": [_attempt(each) for each in attempts],
    }


def _attempt(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "node": attempt.node,
        "resource": attempt.resource,
        "reason": attempt.reason,
        "claimed_at": _time(attempt.claimed_at),
        "started_at": _time(attempt.started_at),
        "ended_at": _time(attempt.ended_at),
        "exit": _ended(attempt.exit),
        "predicted": _predicted(attempt.prediction or Prediction()),
        "measured": _quantities(attempt.measurement or Measurement()),
    }


def warning_view(warning: RunWarning) -> dict[str, Any]:
    """One silent failure, as `headway show --json` prints it."""
    failure = warning.failure
    return {
        "attempt": warning.attempt,
        "kind": failure.kind.value,
        "gpu": failure.gpu,
        "measured": failure.measured,
        "limit": failure.limit,
        "text": failure.text,
        "began_at": _time(warning.began_at),
        "ended_at": _time(warning.ended_at),
        "stopped_at": _time(warning.stopped_at),
    }


def diagnostics_view(found: Diagnostics) -> dict[str, Any]:
    """How steady a run's iteration times are, as `headway show --json` prints it."""
    return {
        "iterations": found.iterations,
        "startup_iterations": found.startup,
        "mean_s": found.mean_s,
        "variation": found.cv,
        "adf_statistic": found.adf_statistic,
        "adf_p_value": found.adf_p_value,
        "stationary": found.stationary,
        "text": found.sentence(),
    }


def _predicted(said: Prediction) -> dict[str, Any]:
    interval = {"runtime_low_s": said.runtime_low_s, "runtime_high_s": said.runtime_high_s}
    return {**_quantities(said), **interval, "basis": said.basis}


def comparison(said: Prediction, found: Measurement) -> list[dict[str, str]]:
    """Rows for people: quantity, what was predicted, what was measured, and their ratio."""
    quantities: list[tuple[str, float | None, float | None, Callable[[Any], str]]] = [
        ("runtime", said.runtime_s, found.runtime_s, format_duration),
        ("host memory peak", said.host_peak_bytes, found.host_peak_bytes, format_size),
        ("GPU memory peak", said.gpu_peak_bytes, found.gpu_peak_bytes, format_size),
        ("cost", said.cost, found.cost, "{:.4f}".format),
    ]
    rows = [
        {
            "quantity": name,
            "predicted": "–" if before is None else form(before),
            "measured": "–" if after is None else form(after),
            "measured ÷ predicted": f"{after / before:.2f}"
            if before and after is not None
            else "–",
        }
        for name, before, after, form in quantities
        if before is not None or after is not None
    ]
    if said.runtime_low_s is not None and said.runtime_high_s is not None:
        low, high = format_duration(said.runtime_low_s), format_duration(said.runtime_high_s)
        rows[0]["predicted"] += f" ({low} to {high})"
    return rows


def _quantities(said: Prediction | Measurement) -> dict[str, Any]:
    return {
        "runtime_s": said.runtime_s,
        "host_peak_bytes": said.host_peak_bytes,
        "gpu_peak_bytes": said.gpu_peak_bytes,
        "cost": said.cost,
    }


def _step(step: Step) -> dict[str, Any]:
    seconds = None
    if step.ended_at is not None:
        seconds = round((step.ended_at - step.started_at).total_seconds(), 3)
    return {
        "name": step.name,
        "attempt": step.attempt,
        "state": step.state.value,
        "seconds": seconds,
        "message": step.message,
    }


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "lease_id": lease.lease_id,
        "node": lease.node,
        "host_memory_bytes": lease.host_memory_bytes,
        "cpus": lease.cpus,
        "gpus": [{"uuid": gpu.uuid, "memory_bytes": gpu.memory_bytes} for gpu in lease.gpus],
        "ports": list(lease.ports),
        "expires_at": _time(lease.expires_at),
    }


def node_view(record: NodeRecord, leases: Iterable[Lease]) -> dict[str, Any]:
    """One node as `headway nodes --json` lists it."""
    node, held = record.node, [lease for lease in leases if lease.node == record.node.name]
    reading = record.reading
    used = {gpu.uuid: gpu for gpu in (reading.gpus or ())} if reading else {}
    lost = reading.lost_gpus if reading else {}
    return {
        "node": node.name,
        "pool": node.pool,
        "state": node.state.value,
        "state_reason": node.state_reason,
        "cpus": node.capacity.cpus,
        "cpus_promised": sum(lease.cpus for lease in held),
        "host_memory_bytes": node.capacity.host_memory_bytes,
        "host_reserve_bytes": node.reserve.host_memory_bytes,
        "host_promised_bytes": sum(lease.host_memory_bytes for lease in held),
        "host_used_bytes": reading.host.used_bytes if reading else None,
        "gpus": [
            {
                "uuid": gpu.uuid,
                "index": gpu.index,
                "name": gpu.name,
                "memory_bytes": gpu.memory_bytes,
                "promised_bytes": sum(
                    grant.memory_bytes
                    for lease in held
                    for grant in lease.gpus
                    if grant.uuid == gpu.uuid
                ),
                "used_bytes": used[gpu.uuid].used_bytes if gpu.uuid in used else None,
                "utilisation_frac": used[gpu.uuid].utilisation_frac if gpu.uuid in used else None,
                "lost": lost.get(gpu.uuid, ""),
            }
            for gpu in node.capacity.gpus
        ],
        "gpu_error": reading.gpu_error if reading else "",
        "runs": [lease.run_id for lease in held],
        "heartbeat_at": _time(record.heartbeat_at),
    }


def gpu_text(gpu: dict[str, Any]) -> str:
    """One GPU of a `node_view` for people: what is promised of it, or that it is lost."""
    if gpu["lost"]:
        return f"gpu{gpu['index']} lost: {gpu['lost']}"
    promised = f"{format_size(gpu['promised_bytes'])} of {format_size(gpu['memory_bytes'])}"
    return f"{gpu['name']} {promised}"


def waiting_view(position: int, record: RunRecord, entry: Start | Stay | None) -> dict[str, Any]:
    """One waiting run as `headway queue --json` lists it.

    Args:
        position: 1 is the front of the line.
        record: The run.
        entry: What the plan says now of a run near the front; None for those behind.
    """
    demand = record.demand
    resource, reason = record.resource, record.reason
    if isinstance(entry, Stay):
        resource, reason = entry.wait.resource.value, entry.wait.reason
    elif isinstance(entry, Start):
        nodes = ", ".join(admit.node for admit in entry.admits)
        resource, reason = None, f"starts now on {nodes}"
    return {
        "position": position,
        "run_id": record.run_id,
        "name": record.name,
        "owner": record.owner or None,
        "team": record.team,
        "attempt": record.attempt,
        "resource": resource,
        "reason": reason,
        "needs_host_memory_bytes": demand.host_memory_bytes if demand else None,
        "needs_gpus": demand.gpus if demand else None,
        **_start(entry),
        "submitted_at": _time(record.submitted_at),
    }


def _start(entry: Start | Stay | None) -> dict[str, Any]:
    """When a run that waits is expected to start, and why that is not known where it is not."""
    said = entry if isinstance(entry, Stay) else None
    return {
        "starts_now": isinstance(entry, Start),
        "earliest_start_at": _time(said.earliest_at if said else None),
        "expected_start_at": _time(said.expected_at if said else None),
        "latest_start_at": _time(said.latest_at if said else None),
        "start_unknown": said.unknown if said else "",
    }


def start_text(view: Mapping[str, Any], now: datetime) -> str:
    """The same for people, by the clock of *now*'s time zone: ``about 07:06 (07:02–07:15)``."""
    if view["starts_now"]:
        return "now"
    names = ("earliest_start_at", "expected_start_at", "latest_start_at")
    times = [view[name] and datetime.fromisoformat(view[name]) for name in names]
    first, expected, last = (each and each.astimezone(now.tzinfo) for each in times)
    if expected is None:
        return "not known" + (f": {view['start_unknown']}" if view["start_unknown"] else "")
    return around(first, expected, last, now)


def rehearsal_view(entry: Start | Stay | None, said: Prediction, demand: Demand) -> dict[str, Any]:
    """What `headway submit --dry-run --json` prints."""
    reason = "behind the runs that are planned for"
    if isinstance(entry, Stay):
        reason = f"waits: {entry.wait.reason}"
    elif isinstance(entry, Start):
        reason = f"at once, on {', '.join(admit.node for admit in entry.admits)}"
    return {
        "position": None if entry is None else entry.position,
        "reason": reason,
        **_start(entry),
        "needs_host_memory_bytes": demand.host_memory_bytes,
        "host_memory_basis": demand.host_memory_basis.value,
        "needs_gpus": demand.gpus,
        "needs_gpu_memory_bytes": demand.gpu_memory_bytes,
        "gpu_memory_basis": demand.gpu_memory_basis.value,
        "needs_whole_gpus": demand.gpus > 0 and demand.sharing is Sharing.WHOLE,
        "runtime_known": said.told is not None,
        "predicted": _predicted(said),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def outcome(state: str) -> int:
    """Exit status of the command line for a run that ended in *state*."""
    return 0 if state == "Completed" else 1


def is_over(seen: FlowRun) -> bool:
    """Whether nothing more will happen to the run, as far as Prefect knows."""
    return seen.state_type in {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
