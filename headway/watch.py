"""Looking at a run from outside: its details, its log, its way to the end."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.errors import LedgerUnreachable, RunUnknown, SiteUnreachable
from headway.estimate.remaining import RemainingTime
from headway.estimate.remaining_diagnostics import diagnose_points
from headway.ledger.records import RunRecord
from headway.line import Line
from headway.model.run import Prediction, RunState
from headway.profile.text import profile_view
from headway.profiling import kept
from headway.runtime.logfile import read_chunk
from headway.server import FlowRun, PrefectServer
from headway.site import Site
from headway.units import format_duration
from headway.view import diagnostics_view, is_over, outcome, run_details, run_view, waiting_view

_POLL_S = 0.5
_CHUNK_BYTES = 1 << 20


def details(site: Site, seen: FlowRun, record: RunRecord | None, ui_url: str) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    view = run_view(seen, record, ui_url)
    if record is None:
        return view
    ledger = site.ledger
    outputs = site.settings.runs_dir / record.run_id / "outputs"
    points = ledger.progress.series(record.run_id, record.attempt)
    known = run_details(
        record,
        steps=ledger.runs.steps(record.run_id),
        lease=ledger.leases.of_run(record.run_id),
        latest=ledger.progress.latest(record.run_id),
        remaining_s=remaining_s(site, record),
        outputs=sorted(str(path) for path in outputs.rglob("*") if path.is_file()),
        ranks=ledger.runs.ranks(record.run_id, record.attempt),
    )
    profile = kept(site, record.run_id)
    return (
        view
        | known
        | {"diagnostics": diagnostics_view(diagnose_points(points))}
        | ({"profile": profile_view(profile)} if profile is not None else {})
    )


def remaining_s(site: Site, record: RunRecord) -> float | None:
    """Seconds that a running run still needs, as far as its points and the prior tell."""
    if record.state is not RunState.RUNNING or record.started_at is None:
        return 0.0 if record.state is RunState.ENDED else None
    said = record.prediction or Prediction()
    remaining = RemainingTime(said.runtime_s, said.runtime_low_s, said.runtime_high_s)
    for point in site.ledger.progress.series(record.run_id, record.attempt):
        done = point.iteration if point.iteration is not None else point.epoch
        if done is not None:
            remaining.update(point.t_s, done, point.total)
    elapsed_s = (site.ledger.now() - record.started_at).total_seconds()
    estimate = remaining.at(elapsed_s)
    return estimate.remaining_s


def log_path(site: Site, run_id: str, attempt: int) -> Path:
    """Where the log of an attempt lies on this node."""
    return site.settings.runs_dir / run_id / "log" / f"attempt-{attempt}.log"


def log_pieces(
    site: Site, server: PrefectServer, seen: FlowRun, record: RunRecord | None, *, follow: bool
) -> Iterator[bytes]:
    """The run's log in pieces, all attempts in order; with *follow* until the run has ended."""
    attempt, offset = 1, 0
    while True:
        try:
            record = site.ledger.runs.get(seen.run_id)
        except RunUnknown:
            record = None
        over = is_over(seen)
        newest = record.attempt if record is not None else 1
        while attempt <= newest:
            path = log_path(site, seen.run_id, attempt)
            while path.exists():
                chunk = read_chunk(path, offset, _CHUNK_BYTES)
                if not chunk.data and not chunk.skipped_bytes:
                    break
                offset = chunk.next_offset
                yield chunk.data
            if attempt == newest:
                break
            attempt, offset = attempt + 1, 0
        if not follow or over:
            return
        site.clock.sleep(_POLL_S)
        seen = server.run(seen.run_id)


def watch_run(site: Site, server: PrefectServer, run_id: str, *, machine: bool) -> int:
    """Follow a run to its end with live progress; the command's exit status."""
    from rich.console import Console  # noqa: PLC0415 - only for people who watch
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=machine)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[says]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("waiting", total=None, says="")
        said = ""
        while True:
            try:
                seen = server.run(run_id)
            except SiteUnreachable as error:
                progress.update(task, says=str(error)[:60])
                site.clock.sleep(2.0)
                continue
            record = _record(site, run_id)
            line = _state_line(seen, record)
            if line != said and not machine:
                progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
                said = line
            _show(progress, task, site, record)
            if is_over(seen):
                break
            site.clock.sleep(_POLL_S)
    view = details(site, seen, _record(site, run_id), server.api_url.removesuffix("/api"))
    if machine:
        sys.stdout.write(json.dumps(view, indent=2) + "\n")
    return outcome(seen.state_name)


def _record(site: Site, run_id: str) -> RunRecord | None:
    try:
        return site.ledger.runs.get(run_id)
    except (RunUnknown, LedgerUnreachable):
        return None


def _state_line(seen: FlowRun, record: RunRecord | None) -> str:
    reason = seen.message
    if record is not None and record.state is RunState.WAITING and record.reason:
        reason = record.reason
    return f"{seen.state_name}" + (f": {reason}" if reason else "")


def _show(progress: Any, task: Any, site: Site, record: RunRecord | None) -> None:
    if record is None or record.state is not RunState.RUNNING:
        return
    point = site.ledger.progress.latest(record.run_id)
    left_s = remaining_s(site, record)
    says = [] if left_s is None else [f"{format_duration(left_s)} left"]
    if point is not None:
        says += [f"{name} {value:.4g}" for name, value in list(point.metrics.items())[:3]]
        done = point.iteration if point.iteration is not None else point.epoch
        progress.update(task, completed=done, total=point.total)
    progress.update(task, description="training", says=", ".join(says))


def line_views(site: Site) -> list[dict[str, Any]]:
    """The line of this node's pool, first in line first, as `headway queue --json` prints it.

    The runs near the front are planned for at this moment; those behind them
    follow by submission.
    """
    records = {record.run_id: record for record in site.ledger.runs.waiting(site.settings.pool)}
    entries = Line(site).preview().entries if records else ()
    planned = [entry for entry in entries if entry.run_id in records]
    views = [waiting_view(e.position, records.pop(e.run_id), e) for e in planned]
    behind = enumerate(records.values(), start=len(views) + 1)
    return views + [waiting_view(position, record, None) for position, record in behind]
