"""Looking at a run from outside: its details, its log, its way to the end."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.errors import LedgerUnreachable, LogElsewhere, RunUnknown, SiteUnreachable
from headway.estimate.remaining_diagnostics import diagnose_points
from headway.estimate.usual import LOOKED_AT, Usual
from headway.ledger.records import RunRecord
from headway.line import Line
from headway.metrics import RunStanding
from headway.model.attempt import Standing
from headway.model.run import RunState
from headway.pool import left_of, usual_of
from headway.profile.text import profile_view
from headway.profiling import kept
from headway.runtime.logfile import read_chunk
from headway.server import FlowRun, PrefectServer
from headway.site import Site
from headway.story import Past
from headway.units import format_duration
from headway.view import diagnostics_view, is_over, outcome, run_details, run_view, waiting_view

_POLL_S = 0.5
_CHUNK_BYTES = 1 << 20


def details(site: Site, seen: FlowRun, record: RunRecord | None, ui_url: str) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    view = run_view(seen, record, ui_url, None if record is None else progress(site, record))
    if record is None:
        return view
    past, ledger = past_of(site, record), site.ledger
    known = run_details(
        record,
        steps=past.steps,
        lease=ledger.leases.of_run(record.run_id),
        latest=ledger.progress.latest(record.run_id),
        remaining_s=_remaining_s(site, record),
        outputs=past.outputs,
        ranks=past.ranks,
        warnings=past.warnings,
        attempts=past.attempts,
    )
    if record.state is RunState.WAITING:
        known["waiting"] = waiting_of(site, record)
    return (
        view
        | known
        | {"diagnostics": diagnostics_view(past.diagnostics)}
        | ({"profile": profile_view(past.profile)} if past.profile is not None else {})
    )


def past_of(site: Site, record: RunRecord) -> Past:
    """What the ledger and this node's disk have of one run, for its story."""
    ledger, run_id = site.ledger, record.run_id
    folder = site.settings.runs_dir / run_id
    points = ledger.progress.series(run_id, record.attempt)
    return Past(
        record,
        attempts=ledger.attempts.of_run(run_id),
        leases=ledger.leases.every_of_run(run_id),
        warnings=ledger.warnings.of_run(run_id),
        steps=ledger.runs.steps(run_id),
        ranks=ledger.runs.ranks(run_id, record.attempt),
        folder=folder,
        outputs=sorted(str(path) for path in (folder / "outputs").rglob("*") if path.is_file()),
        diagnostics=diagnose_points(points),
        profile=kept(site, run_id),
    )


def progress(site: Site, record: RunRecord) -> dict[str, float | None]:
    """How far a run is, for `run_view`; nothing of one that does not run."""
    return progress_of(standings(site, [record])).get(record.run_id, {})


def progress_of(found: Sequence[RunStanding]) -> dict[str, dict[str, float | None]]:
    """The same of many, by run."""
    return {
        each.record.run_id: {
            "elapsed_s": each.elapsed_s,
            "done_frac": each.done_frac,
            "remaining_s": each.remaining_s,
        }
        for each in found
        if each.elapsed_s is not None
    }


def _remaining_s(site: Site, record: RunRecord) -> float | None:
    if record.state is RunState.ENDED:
        return 0.0
    return standings(site, [record])[0].remaining_s


def standings(site: Site, records: Sequence[RunRecord]) -> list[RunStanding]:
    """How far each of *records* is.

    Whoever follows a run says it to the ledger every few seconds; nobody walks
    through its points again. Before the first word what was learnt of it counts.
    """
    ledger = site.ledger
    following = [r for r in records if r.state is RunState.RUNNING]
    if not following:
        return [RunStanding(record, None, None, None) for record in records]
    running = ledger.runs.all(states=(RunState.RUNNING,))
    said = ledger.standings.of([r.run_id for r in (*following, *running)])
    usual = usual_of(ledger.runs.lasted(LOOKED_AT), running, said)
    now = ledger.now()
    return [_standing(record, said.get(record.run_id), usual, now) for record in records]


def _standing(record: RunRecord, last: Standing | None, usual: Usual, now: datetime) -> RunStanding:
    if record.state is not RunState.RUNNING or record.started_at is None:
        return RunStanding(record, None, None, None)
    elapsed_s = max((now - record.started_at).total_seconds(), 0.0)
    done = last.done_frac if last is not None and last.attempt == record.attempt else None
    left = left_of(record, last, usual, now)  # what the line goes by, too
    return RunStanding(record, elapsed_s, done, None if left is None else left.median_s)


def log_path(site: Site, run_id: str, attempt: int) -> Path:
    """Where the log of an attempt lies on this node."""
    return site.settings.runs_dir / run_id / "log" / f"attempt-{attempt}.log"


def log_pieces(
    site: Site, server: PrefectServer, seen: FlowRun, *, follow: bool
) -> Iterator[bytes]:
    """The run's log in pieces, all attempts in order; with *follow* until the run has ended.

    Raises:
        LogElsewhere: The newest attempt's log is not on this node.
    """
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
        if record is not None:
            _refuse_elsewhere(site, record)
        if not follow or over:
            return
        site.clock.sleep(_POLL_S)
        seen = server.run(seen.run_id)


def _refuse_elsewhere(site: Site, record: RunRecord) -> None:
    if record.node is None or record.node == site.settings.node or record.started_at is None:
        return
    path = log_path(site, record.run_id, record.attempt)
    if not path.exists():
        raise LogElsewhere(record.run_id, record.node, str(path.relative_to(site.settings.home)))


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
        # The state's message has place and expected start, too.
        reason = reason if reason.startswith(record.reason) else record.reason
    return f"{seen.state_name}" + (f": {reason}" if reason else "")


def _show(progress: Any, task: Any, site: Site, record: RunRecord | None) -> None:
    if record is None or record.state is not RunState.RUNNING:
        return
    point = site.ledger.progress.latest(record.run_id)
    left_s = _remaining_s(site, record)
    says = [] if left_s is None else [f"{format_duration(left_s)} left"]
    if point is not None:
        says += [f"{name} {value:.4g}" for name, value in list(point.metrics.items())[:3]]
        done = point.iteration if point.iteration is not None else point.epoch
        progress.update(task, completed=done, total=point.total)
    progress.update(task, description="training", says=", ".join(says))


def line_views(site: Site, pool: str = "") -> list[dict[str, Any]]:
    """The line of a pool, first in line first, as `headway queue --json` prints it.

    The runs near the front are planned for at this moment; those behind them
    follow by submission.

    Args:
        site: Where.
        pool: The pool; empty for this node's.
    """
    records = {r.run_id: r for r in site.ledger.runs.waiting(pool or site.settings.pool)}
    entries = Line(site, pool).preview().entries if records else ()
    planned = [entry for entry in entries if entry.run_id in records]
    views = [waiting_view(e.position, records.pop(e.run_id), e) for e in planned]
    behind = enumerate(records.values(), start=len(views) + 1)
    return views + [waiting_view(position, record, None) for position, record in behind]


def waiting_of(site: Site, record: RunRecord) -> dict[str, Any] | None:
    """What `line_views` says of one run; None when it waits no more."""
    views = line_views(site, record.pool)
    return next((view for view in views if view["run_id"] == record.run_id), None)
