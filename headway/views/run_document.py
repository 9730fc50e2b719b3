"""One run as plain data (`views.answers`), for people and for machines."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headway.ledger.records import RunRecord
from headway.model.attempt_record import AttemptRecord
from headway.model.kept_code import KeptCode
from headway.model.lease import NO_EXPIRY, Demand, Lease
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, Step
from headway.model.run_warning import RunWarning
from headway.model.session import serves_port, session_link
from headway.model.size import Size
from headway.prefect.listed_run import ListedRun
from headway.units import COST, format_cost, format_duration, format_size
from headway.views.answers import (
    AttemptShown,
    Code,
    DemandShown,
    GrantShown,
    LeaseShown,
    Predicted,
    ProgressShown,
    Quantities,
    RankShown,
    StepShown,
    StoredShown,
)
from headway.views.fields import fields, iso_time, shaped
from headway.views.run_history import RunHistory
from headway.views.site_snapshot import RunProgress

_STATES = {
    RunState.WAITING: ("SCHEDULED", "AwaitingHeadroom"),
    RunState.CLAIMED: ("PENDING", "Pending"),
    RunState.RUNNING: ("RUNNING", "Running"),
}
_ENDS = {
    ExitKind.OK: ("COMPLETED", "Completed"),
    ExitKind.CANCELLED: ("CANCELLED", "Cancelled"),
    ExitKind.TIMED_OUT: ("FAILED", "TimedOut"),
}
_FAILED = ("FAILED", "Failed")
"""Type and name of Prefect's state."""
_OF_THE_LEDGER = ("node", "runtime", "team", "started_at", "ended_at")


def run_view(
    seen: ListedRun,
    record: RunRecord | None,
    progress: RunProgress | None = None,
) -> dict[str, Any]:
    """One run as `headway runs --json` lists it.

    Prefect knows every run from its creation; the ledger knows more, also whose it is, from the
    moment a worker has seen it. *progress* says how far a run that runs is. Its address is below
    the gateway's own: whoever asks knows by which name that is reached.
    """
    running_s = progress.elapsed_s if progress else None
    known = fields(record, *_OF_THE_LEDGER) if record else dict.fromkeys(_OF_THE_LEDGER)
    return {
        "run_id": seen.run_id,
        "name": seen.name,
        "owner": (record.owner if record else None) or None,
        **known,
        "state": seen.state_name,
        "reason": (progress.phase if progress else "") or _reason(seen, record),
        "attempt": record.attempt if record else 1,
        "size": None if record is None else _size(record),
        "exit": exit_view(record.exit if record else None),
        "submitted_at": seen.created_at,
        "duration_s": _lasted_s(record) if running_s is None else running_s,
        "runtime_s": record.measurement.runtime_s if record and record.measurement else None,
        **_predicted(record.prediction if record else None),
        **(fields(progress, *_FAR) if progress else dict.fromkeys(_FAR)),
        "url": f"/runs/flow-run/{seen.run_id}",
    }


def _predicted(said: Prediction | None) -> dict[str, Any]:
    """What was said of a run's time before it started, also where that was but a guess."""
    said = said or Prediction(basis="")
    return {
        "predicted_s": said.runtime_s,
        "predicted_low_s": said.runtime_low_s,
        "predicted_high_s": said.runtime_high_s,
        "predicted_basis": said.basis or None,
    }


def as_listed(record: RunRecord) -> ListedRun:
    """*record* as Prefect would list the run, for when Prefect is away or has it no more."""
    kind, _ = _STATES.get(record.state, _FAILED)
    if record.suspended_at is not None:
        kind = "PAUSED"
    if record.exit is not None:
        kind, _ = _ENDS.get(record.exit.kind, _FAILED)
    return ListedRun(
        run_id=record.run_id,
        name=record.name,
        state_type=kind,
        state_name=ledger_state(record),
        message=record.exit.message if record.exit is not None else record.reason,
        created_at=record.submitted_at.isoformat(),
        parameters={"job": record.job},
    )


def _lasted_s(record: RunRecord | None) -> float | None:
    """How long the newest attempt of a run that has ended ran."""
    if record is None or record.started_at is None or record.ended_at is None:
        return None
    return max((record.ended_at - record.started_at).total_seconds(), 0.0)


def _reason(seen: ListedRun, record: RunRecord | None) -> str:
    # A run that was cancelled in the queue waits no more, though no worker has noted it yet.
    if record is not None and record.state is RunState.WAITING and not is_over(seen):
        return record.reason or seen.message
    return seen.message


def exit_view(end: Exit | None) -> dict[str, Any] | None:
    """How a run or an attempt ended; None when it has not."""
    return None if end is None else fields(end, "kind", "code", "message")


def end_name(kind: ExitKind) -> str:
    """The name of Prefect's state of a run that ended so."""
    return _ENDS.get(kind, _FAILED)[1]


def ledger_state(record: RunRecord) -> str:
    """The state's name as Prefect would show it, for when Prefect is away."""
    if record.state is RunState.ENDED and record.exit is not None:
        return end_name(record.exit.kind)
    if record.suspended_at is not None:
        return "Suspended"
    return _STATES.get(record.state, ("", record.state.value))[1]


def run_details(history: RunHistory, remaining_s: float | None) -> dict[str, Any]:
    """What `headway show --json` adds to `run_view`.

    Args:
        history: Of the run.
        remaining_s: How long it still takes; None while that is not known.
    """
    record = history.record
    progress = history.newest or NO_PROGRESS
    return {
        "job": dict(record.job),
        "session": session_link(record.run_id) if _serves(history) else None,
        "owner": record.owner or None,
        "team": record.team,
        "code": None if history.code is None else _code(history.code),
        "steps": [_step(step) for step in history.steps],
        "demand": None if record.demand is None else shaped(DemandShown, record.demand),
        "lease": None if history.lease is None else _lease(history.lease),
        "predicted": predicted_view(record.prediction or Prediction()),
        "measured": shaped(Quantities, record.measurement or Measurement()),
        "progress": shaped(ProgressShown, progress, remaining_s=remaining_s),
        "outputs": None if history.outputs is None else list(history.outputs),
        "data": [asdict(each) for each in history.stagings],
        "stored": [shaped(StoredShown, each) for each in history.stored],
        "gang": record.gang_id,
        "ranks": [
            shaped(
                RankShown,
                each,
                rank=each.gang_rank,
                state=ledger_state(each),
                exit=exit_view(each.exit),
            )
            for each in history.ranks
        ],
        "warnings": [warning_view(each) for each in history.warnings],
        "attempts": [_attempt(each, record) for each in history.attempts],
    }


def _serves(history: RunHistory) -> bool:
    """Whether a session's program may be asked for now."""
    record, lease = history.record, history.lease
    running = record.state is RunState.RUNNING and lease is not None
    return running and serves_port(record.job)


_FAR = (
    "done_frac", "remaining_s", "remaining_low_s", "remaining_high_s", "remaining_cost",
    "progress_text",
)  # fmt: skip
NO_PROGRESS = ProgressPoint(t_s=0.0)


def _code(code: KeptCode) -> dict[str, Any]:
    return shaped(Code, code, id=code.code_id, commit=code.commit_id or None)


def _size(record: RunRecord) -> str | None:
    return None if record.state is RunState.WAITING else size_words(record.demand)


def size_words(demand: Demand | None) -> str | None:
    """What an attempt has of the sizes that its job leaves open; None where it leaves none."""
    return Size(demand.nodes, demand.gpus).words if demand is not None and demand.nodes else None


def size_of(attempt: AttemptRecord, record: RunRecord) -> str | None:
    """The same of *attempt* of *record*; None for one that was never granted."""
    newest = attempt.attempt == record.attempt and attempt.exit is None
    return size_words(record.demand if newest else attempt.demand) if attempt.node else None


def _attempt(attempt: AttemptRecord, record: RunRecord) -> dict[str, Any]:
    return shaped(
        AttemptShown,
        attempt,
        size=size_of(attempt, record),
        exit=exit_view(attempt.exit),
        predicted=predicted_view(attempt.prediction or Prediction()),
        measured=shaped(Quantities, attempt.measurement or Measurement()),
    )


def warning_view(warning: RunWarning) -> dict[str, Any]:
    """One silent failure, as `headway show --json` prints it."""
    return {
        "attempt": warning.attempt,
        **fields(warning.failure, "kind", "gpu", "measured", "limit", "text"),
        **fields(warning, "began_at", "ended_at", "stopped_at"),
    }


def predicted_view(said: Prediction) -> dict[str, Any]:
    """What was predicted of a run, with the interval of its runtime and what it rests on."""
    return shaped(Predicted, said, runtime_known=said.told is not None)


def comparison(said: Prediction, found: Measurement) -> list[dict[str, str]]:
    """Rows for people: quantity, what was predicted, what was measured, and their ratio."""
    quantities: list[tuple[str, float | None, float | None, Callable[[Any], str]]] = [
        ("run time of the program", said.runtime_s, found.runtime_s, format_duration),
        ("host memory peak", said.host_peak_bytes, found.host_peak_bytes, format_size),
        ("GPU memory peak", said.gpu_peak_bytes, found.gpu_peak_bytes, format_size),
        (COST, said.cost, found.cost, format_cost),
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
        guess = "" if said.told else "guess: "
        rows[0]["predicted"] = f"{guess}{rows[0]['predicted']} ({low} to {high})"
    return rows


def _step(step: Step) -> dict[str, Any]:
    seconds = None
    if step.ended_at is not None:
        seconds = round((step.ended_at - step.started_at).total_seconds(), 3)
    return shaped(StepShown, step, seconds=seconds)


def _lease(lease: Lease) -> dict[str, Any]:
    return shaped(
        LeaseShown,
        lease,
        gpus=[shaped(GrantShown, gpu) for gpu in lease.gpus],
        ports=list(lease.ports),
        host_ports=list(lease.ports.values()),
        expires_at=iso_time(lease.expires_at) if lease.expires_at < NO_EXPIRY else None,
    )


def is_over(seen: ListedRun) -> bool:
    """Whether nothing more will happen to the run, as far as Prefect knows."""
    return seen.state_type in {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
