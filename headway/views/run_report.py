"""The report of a run, for whoever reads it a week later: asked, waited, granted, ran, ended.

The page of the run and `headway show` print the same sections.
"""

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headway.errors import shown
from headway.ledger.records import RunRecord
from headway.model.attempt_record import AttemptRecord
from headway.model.kept_code import KeptCode
from headway.model.lease import Demand, Lease, Sharing
from headway.model.notice import TRACKER
from headway.model.progress import MetricSpan
from headway.model.run import ANOTHER_TEAMS, Exit, ExitKind, Measurement, Prediction, Step
from headway.model.run_file import StoredPart
from headway.model.run_warning import RunWarning
from headway.model.staged import Staging
from headway.policy.closeness import closeness
from headway.profile.text import profile_view
from headway.units import format_duration, format_size
from headway.views.run_document import comparison, size_of
from headway.views.run_history import RunHistory

_ENDS = {
    ExitKind.OK: "ended well",
    ExitKind.FAILED: "failed",
    ExitKind.OUT_OF_MEMORY: "was killed for host memory",
    ExitKind.GPU_OUT_OF_MEMORY: "ran out of GPU memory",
    ExitKind.TIMED_OUT: "was stopped at its time limit",
    ExitKind.CANCELLED: "was cancelled",
    ExitKind.INFRASTRUCTURE: "was ended by the node or the engine, not by its program",
    ExitKind.PREEMPTED: "was stopped, to go on later",
    ExitKind.REFUSED: "was refused",
}
FACTS = ("", "")
"""Columns of a section whose rows are names with what is said of each."""
_MOST_OUTPUTS = 20
_MOST_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table; without names of columns it is a list of named facts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def run_report(history: RunHistory) -> list[Section]:
    """Everything about one run, in the order in which it happened."""
    sections = [Section("Asked for", FACTS, tuple(_asked(history)))]
    since = history.record.submitted_at
    for attempt in history.attempts:
        sections.append(
            Section(f"Attempt {attempt.attempt}", FACTS, tuple(_attempt(history, attempt, since)))
        )
        if (rows := _compared(attempt)) is not None:
            title = f"Attempt {attempt.attempt}: predicted and measured"
            sections.append(Section(title, ("", *_COLUMNS), rows))
        since = attempt.ended_at or since
    if history.metrics:
        sections.append(Section("Metrics", ("", *MetricSpan._fields), tuple(_metrics(history))))
    if told := tuple(_untold(history)):
        sections.append(Section("Not told", FACTS, told))
    if history.ranks:
        sections.append(Section("Other nodes", FACTS, tuple(map(_rank, history.ranks))))
    if history.attempts:
        sections.append(Section("Left behind", FACTS, tuple(_left(history))))
    return sections


def headline(history: RunHistory) -> str:
    """The run in one sentence."""
    record = history.record
    if record.exit is None:
        return f"{_plain(record.name)} has not ended yet ({record.state.value})."
    tries = f" in attempt {record.attempt}" if record.attempt > 1 else ""
    where = f" on {record.node}" if record.node else ""
    return (
        f"{_plain(record.name)} {_ENDS[record.exit.kind]}{tries}{where}: "
        f"{_plain(record.exit.message)}."
    )


# -- what was asked -------------------------------------------------------------------


def _asked(history: RunHistory) -> Iterable[tuple[str, str]]:
    record = history.record
    job = record.job
    who = _plain(record.owner) if record.owner else "somebody unknown"
    yield "submitted", f"{time_text(record.submitted_at)} by {who}, team {record.team}"
    yield "program", _plain(" ".join(str(word) for word in job.get("command") or ()))
    yield "image", _plain(str(job.get("image", "")))
    if history.code is not None:
        yield "code", code_text(history.code)
    for name, dataset in {"": job.get("dataset"), **(job.get("datasets") or {})}.items():
        if isinstance(dataset, Mapping):
            yield f"data set {_plain(name)}".strip(), _plain(str(dataset.get("uri", "")))
    if record.demand is not None:
        yield "needs", _needs(record.demand)
    said = record.prediction
    if said is not None and said.runtime_s is not None:
        low, high = (format_duration(s or 0.0) for s in (said.runtime_low_s, said.runtime_high_s))
        yield (
            "expected run time",
            f"{format_duration(said.runtime_s)} ({low} to {high}), by {said.basis}"
            + (", said before it began" if record.started_at is not None else ""),
        )


def code_text(code: KeptCode) -> str:
    """Which code it was, in one line."""
    changed = " with changes" if code.diff else ""
    commit = f"commit {code.commit_id[:12]}{changed}, " if code.commit_id else ""
    gone = "" if code.is_kept else "; its files are not kept any more"
    files = "1 file" if code.files == 1 else f"{code.files} files"
    return f"{commit}{files}, {format_size(code.size_bytes)} (code {code.code_id[:12]}{gone})"


def _needs(demand: Demand) -> str:
    host = demand.host_memory_why or demand.host_memory_basis
    parts = [
        f"{format_size(demand.host_memory_bytes)} of host memory ({host})",
        f"{demand.cpus:g} CPUs",
    ]
    if demand.gpus:
        whole = demand.sharing is Sharing.WHOLE
        least = "at least " if whole else ""
        each = f", {least}{format_size(demand.gpu_memory_bytes)} each ({demand.gpu_memory_basis})"
        if not demand.gpu_memory_bytes:
            each = f" ({demand.gpu_memory_basis})"
        kind = "whole GPU(s)" if whole else "GPU(s)"
        parts.append(f"{demand.gpus} {kind} {demand.gpu_type}".strip() + each)
    return ", ".join(parts)


# -- one attempt ----------------------------------------------------------------------


def _attempt(
    history: RunHistory, attempt: AttemptRecord, since: datetime
) -> Iterable[tuple[str, str]]:
    yield "waited", _waited(attempt, since)
    for lease in history.leases:
        if lease.attempt == attempt.attempt:
            yield "granted", _granted(history, lease)
            if grown := grown_text(history.record, lease):
                yield "memory", grown
    if (size := size_of(attempt, history.record)) is not None:
        yield "size", f"{size}, of what its job allows"
    if attempt.started_at is not None:
        yield "ran", _ran(attempt.started_at, attempt.ended_at)
    steps = [step for step in history.steps if step.attempt == attempt.attempt]
    if steps:
        yield "time of each step", ", ".join(_step(step, attempt.exit) for step in steps)
    yield from _stagings(history, attempt.attempt)
    if (peaks := _peaks(attempt, history.leases)) != "":
        yield "peaks", peaks
    yield from _shared(attempt)
    yield from (("warning", _warning(w)) for w in history.warnings if w.attempt == attempt.attempt)
    if attempt.exit is not None:
        yield "ended", f"it {ending(attempt.exit)}"
        yield "said", _plain(attempt.exit.message)
    if attempt.started_at is not None:
        yield "log", _place(history, attempt.node, Path("log", f"attempt-{attempt.attempt}.log"))


def _untold(history: RunHistory) -> Iterable[tuple[str, str]]:
    """Trackers that have not taken its end. Errors of other blocks may hold secret addresses."""
    for notice in history.notices:
        if notice.error and notice.block.startswith(f"{TRACKER}/"):
            then = "; it is asked again" if notice.taken_at is None else ""
            yield notice.block, _plain(notice.error) + then


def _waited(attempt: AttemptRecord, since: datetime) -> str:
    until = attempt.claimed_at or attempt.ended_at
    took = "" if until is None else format_duration(max((until - since).total_seconds(), 0.0))
    if attempt.resource is None:
        return f"{took}; it fitted at once" if attempt.claimed_at is not None else took
    return f"{took} for {attempt.resource.replace('_', ' ')}: it {_plain(attempt.reason)}"


def _ran(since: datetime, until: datetime | None) -> str:
    if until is None:
        return f"since {time_text(since)}"
    took = format_duration((until - since).total_seconds())
    return f"{took}, the whole attempt: from {time_text(since)} to {time_text(until)}"


def _granted(history: RunHistory, lease: Lease) -> str:
    held = {grant.uuid for grant in lease.gpus}
    gpus = [gpu for gpu in history.gpus if gpu.uuid in held]
    parts = [
        f"{format_size(lease.host_memory_bytes)} of host memory",
        f"{lease.cpus:g} CPUs",
    ]
    parts += [f"{format_size(g.memory_bytes)} of {g.uuid} ({g.sharing})" for g in lease.gpus]
    if len(gpus) == len(held) and (together := closeness(gpus)):
        parts[-1] += f", these {together}"
    parts += [f"{lease.ports_text} of the node"] if lease.ports else []
    return (
        f"lease {lease.lease_id} on {lease.node}, {time_text(lease.granted_at)}: {', '.join(parts)}"
    )


def grown_text(record: RunRecord, lease: Lease) -> str:
    """From what guess the memory of the run's newest attempt was raised; empty where it was not."""
    demand = record.demand
    if demand is None or lease.attempt != record.attempt:
        return ""
    if lease.host_memory_bytes <= demand.host_memory_bytes:
        return ""
    guess, now = format_size(demand.host_memory_bytes), format_size(lease.host_memory_bytes)
    return f"raised from {guess}, which was a guess, to {now} while it ran"


def _stagings(history: RunHistory, attempt: int) -> Iterable[tuple[str, str]]:
    for staging in history.stagings:
        if staging.attempt == attempt:
            yield f"data set {_plain(staging.name)}".strip(), _staging(staging)


def _staging(staging: Staging) -> str:
    size, took = format_size(staging.size_bytes), format_duration(staging.took_s)
    how = "was in the cache of" if staging.was_there else "copied to"
    return f"{size}, {how} node {staging.node}, {took}"


def _step(step: Step, exit_: Exit | None) -> str:
    if step.ended_at is None:
        return f"{step.name} ({step.state})"
    took = format_duration((step.ended_at - step.started_at).total_seconds())
    kind = exit_.kind if exit_ is not None else None
    how = kind if kind is ExitKind.CANCELLED else step.state  # it fails as its program is stopped
    return f"{step.name} {took}" + ("" if not step.message else f" ({how})")


def _shared(attempt: AttemptRecord) -> Iterable[tuple[str, str]]:
    slowed = attempt.measurement.slowed if attempt.measurement is not None else {}
    for run_id, times in slowed.items():
        beside = run_id or ANOTHER_TEAMS
        yield "shared", f"a step took {times:.1f} times as long beside {beside} as alone"


def _peaks(attempt: AttemptRecord, leases: Sequence[Lease]) -> str:
    got = attempt.measurement or Measurement()
    # An attempt that gave its place back has had several; the newest is the one it ran under.
    own = (one for one in leases if (one.attempt, one.gang_rank) == (attempt.attempt, 0))
    lease = max(own, key=lambda one: one.lease_id, default=None)
    parts = []
    if got.host_peak_bytes is not None:
        limit = lease.host_memory_bytes if lease is not None else 0
        share = f" of {format_size(limit)} ({got.host_peak_bytes / limit:.0%})" if limit else ""
        parts.append(f"host memory {format_size(got.host_peak_bytes)}{share}")
    if got.gpu_peak_bytes is not None:
        granted = sum(gpu.memory_bytes for gpu in lease.gpus) if lease is not None else 0
        share = f" of {format_size(granted)}" if granted else ""
        parts.append(f"GPU memory {format_size(got.gpu_peak_bytes)}{share}")
    if got.disk_peak_bytes is not None:
        promised = f" of {format_size(lease.disk_bytes)}" if lease and lease.disk_bytes else ""
        parts.append(f"disk {format_size(got.disk_peak_bytes)}{promised}")
    if got.cpu_s is not None and got.runtime_s:
        parts.append(f"{got.cpu_s / got.runtime_s:.1f} CPUs on average")
    return ", ".join(parts)


def _warning(warning: RunWarning) -> str:
    failure = warning.failure
    until = "goes on" if warning.ended_at is None else f"to {time_text(warning.ended_at)}"
    acted = "; the site ended the run for it" if warning.stopped_at is not None else ""
    kind = failure.kind.value.replace("_", " ")
    return f"{kind}: it {_plain(failure.text)} (from {time_text(warning.began_at)}, {until}{acted})"


def ending(exit_: Exit) -> str:
    """How an attempt ended, with its exit code and signal, in words."""
    code = "" if exit_.code is None else f", with exit {exit_.code}"
    if exit_.code is not None and exit_.code > 128:
        with suppress(ValueError):
            code += f", signal {signal.Signals(exit_.code - 128).name}"
    return _ENDS[exit_.kind] + code


_COLUMNS = ("predicted", "measured", "measured ÷ predicted")


def _compared(attempt: AttemptRecord) -> tuple[tuple[str, ...], ...] | None:
    if attempt.measurement is None or attempt.measurement.runtime_s is None:
        return None
    rows = comparison(attempt.prediction or Prediction(), attempt.measurement)
    return tuple((row["quantity"], *(row[name] for name in _COLUMNS)) for row in rows)


def _rank(run: RunRecord) -> tuple[str, str]:
    how = run.state.value if run.exit is None else f"it {ending(run.exit)}"
    return f"rank {run.gang_rank}", f"run {run.run_id} on {run.node or 'no node'}: {how}"


def _metrics(history: RunHistory) -> Iterable[tuple[str, ...]]:
    for name, span in history.metrics.items():
        yield _plain(name), *("–" if math.isinf(each) else f"{each:.6g}" for each in span)


# -- what is left ---------------------------------------------------------------------


def _left(history: RunHistory) -> Iterable[tuple[str, str]]:
    yield from _outputs(history)
    for part in history.stored:
        yield from _in_the_store(part)
    if history.profile is not None:
        view = profile_view(history.profile)
        yield "profile", "; ".join([view["text"], *(each["text"] for each in view["copies"])])


def _outputs(history: RunHistory) -> Iterable[tuple[str, str]]:
    fetch = f"fetch them by: headway outputs {history.record.run_id} DIR"
    if history.outputs is None:
        yield "outputs", f"on node {history.record.node}; {fetch}"
        return
    if not history.outputs and any(part.is_there and part.files for part in history.stored):
        yield "outputs", f"in the site's store; {fetch}"
        return
    files = "1 file" if len(history.outputs) == 1 else f"{len(history.outputs)} files"
    yield "outputs", f"{files}; {fetch}" if history.outputs else "none"
    for path in history.outputs[:_MOST_OUTPUTS]:
        yield "", _plain(str(Path(path).relative_to(history.folder / "outputs")))
    if len(history.outputs) > _MOST_OUTPUTS:
        yield "", f"… and {len(history.outputs) - _MOST_OUTPUTS} more"


def _in_the_store(part: StoredPart) -> Iterable[tuple[str, str]]:
    if part.key:
        until = "" if part.removed_at is None else f"; removed at {time_text(part.removed_at)}"
        files = "1 file" if part.files == 1 else f"{part.files} files"
        what = f"{files}, {format_size(part.size_bytes)}"
        yield (
            "store",
            f"as of attempt {part.attempt}: {what}, at {time_text(part.stored_at)}{until}",
        )
    if part.note:
        yield "warning", f"not in the store: {_plain(part.note)}"


def _place(history: RunHistory, node: str | None, path: Path) -> str:
    """Where *path* of the run's folder on *node* lies, as somebody on this node can use it."""
    if node in (None, history.here):
        return str(history.folder / path)
    return f"on node {node}: {Path('runs', history.record.run_id) / path} below its HEADWAY_HOME"


def time_text(moment: datetime) -> str:
    """*moment* to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _plain(text: str) -> str:
    return shown(text, _MOST_CHARACTERS)[1:-1]
