"""Looking at a run from outside: its details, its log, its way to the end."""

import errno
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from headway.attempt import container_name
from headway.errors import LedgerUnreachable, LogElsewhere, RunUnknown, SiteUnreachable
from headway.estimate.remaining import RemainingTime
from headway.estimate.remaining_diagnostics import diagnose_points
from headway.ledger.records import RunRecord
from headway.line import Line
from headway.metrics import RunStanding
from headway.model.attempt import Standing
from headway.model.run import Prediction, RunState
from headway.profile.text import profile_view
from headway.profiling import kept
from headway.runtime import secretfiles
from headway.runtime.logfile import read_chunk
from headway.runtime.redact import Redactor
from headway.server import FlowRun, PrefectServer
from headway.site import Site
from headway.story import Past
from headway.terminal import plain
from headway.units import format_duration
from headway.view import diagnostics_view, is_over, outcome, run_details, run_view, waiting_view

_POLL_S = 0.5
_CHUNK_BYTES = 1 << 20


def details(site: Site, seen: FlowRun, record: RunRecord | None, ui_url: str) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    view = run_view(seen, record, ui_url)
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


def _remaining_s(site: Site, record: RunRecord) -> float | None:
    if record.state is RunState.ENDED:
        return 0.0
    return standings(site, [record])[0].remaining_s


def standings(site: Site, records: Sequence[RunRecord]) -> list[RunStanding]:
    """How far each of *records* is.

    Whoever follows a run says it to the ledger every few seconds; nobody walks
    through its points again. Before the first word the prior alone counts.
    """
    said = site.ledger.standings.of([r.run_id for r in records if r.state is RunState.RUNNING])
    now = site.ledger.now()
    return [_standing(record, said.get(record.run_id), now) for record in records]


def _standing(record: RunRecord, last: Standing | None, now: datetime) -> RunStanding:
    if record.state is not RunState.RUNNING or record.started_at is None:
        return RunStanding(record, None, None, None)
    elapsed_s = max((now - record.started_at).total_seconds(), 0.0)
    if last is None or last.attempt != record.attempt:
        said = record.prediction or Prediction()
        prior = RemainingTime(said.runtime_s, said.runtime_low_s, said.runtime_high_s)
        return RunStanding(record, elapsed_s, None, prior.at(elapsed_s).remaining_s)
    left_s = last.remaining_s
    if left_s is not None:
        left_s = max(left_s - max((now - last.at).total_seconds(), 0.0), 0.0)
    return RunStanding(record, elapsed_s, last.done_frac, left_s)


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
    attempt = 1
    log = _AttemptLog(site, seen.run_id, attempt)
    while True:
        try:
            record = site.ledger.runs.get(seen.run_id)
        except RunUnknown:
            record = None
        over = is_over(seen)
        newest = record.attempt if record is not None else 1
        while attempt <= newest:
            yield from log.new()
            if attempt == newest:
                break
            yield log.rest()
            attempt += 1
            log = _AttemptLog(site, seen.run_id, attempt)
        if record is not None:
            _refuse_elsewhere(site, record)
        if not follow or over:
            yield log.rest()
            return
        site.clock.sleep(_POLL_S)
        seen = server.run(seen.run_id)


class _AttemptLog:
    """The log of one attempt, read on and on; its secrets are struck out.

    What they are is known while its container is there; then its file is free of them.
    """

    def __init__(self, site: Site, run_id: str, attempt: int) -> None:
        self._path = log_path(site, run_id, attempt)
        self._secrets = site.settings.secrets_dir / container_name(run_id, attempt)
        self._redactor: Redactor | None = None
        self._offset = 0

    def new(self) -> Iterator[bytes]:
        """What has come since it was last asked, in pieces."""
        if self._redactor is None:
            if not self._path.exists():
                return
            if self._path.is_symlink() or not self._path.is_file():
                raise OSError(errno.EINVAL, "its program put something else there", self._path)
            self._redactor = Redactor(secretfiles.read(self._secrets))
        while True:
            chunk = read_chunk(self._path, self._offset, _CHUNK_BYTES)
            if not chunk.data and not chunk.skipped_bytes:
                return
            self._offset = chunk.next_offset
            yield self._redactor.feed(chunk.data)

    def rest(self) -> bytes:
        """What was held back, when nothing more comes."""
        return self._redactor.rest() if self._redactor is not None else b""


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
    text = partial(TextColumn, markup=False)  # the log's own words are no markup
    columns = (text("{task.description}"), BarColumn(), text("{task.fields[says]}"))
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
    return plain(f"{seen.state_name}" + (f": {reason}" if reason else ""))


def _show(progress: Any, task: Any, site: Site, record: RunRecord | None) -> None:
    if record is None or record.state is not RunState.RUNNING:
        return
    point = site.ledger.progress.latest(record.run_id)
    left_s = _remaining_s(site, record)
    says = [] if left_s is None else [f"{format_duration(left_s)} left"]
    if point is not None:
        says += [f"{plain(name)} {value:.4g}" for name, value in list(point.metrics.items())[:3]]
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
