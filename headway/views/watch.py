"""Looking at a run from outside: its details, its log, its way to the end."""

import errno
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import LedgerUnreachable, LogElsewhere, RunUnknown, SiteRefused, SiteUnreachable
from headway.estimate.remaining.diagnostics import diagnose_points
from headway.estimate.usual import LOOKED_AT, Usual
from headway.ledger.records import RunRecord
from headway.model.attempt import Standing
from headway.model.run import RunState
from headway.prefect.client import FlowRun, PrefectServer
from headway.profile.text import profile_view
from headway.run.attempt import container_name
from headway.run.profiling import kept
from headway.runtime import secretfiles
from headway.runtime.logfile import read_chunk
from headway.runtime.redact import Redactor
from headway.scheduler.queue import Line
from headway.scheduler.snapshot import left_of, usual_of
from headway.site import Site
from headway.units import format_duration
from headway.views.documents import (
    diagnostics_view,
    is_over,
    outcome,
    run_details,
    run_view,
    waiting_view,
)
from headway.views.metrics import RunStanding
from headway.views.show import Past
from headway.views.terminal import log_line, plain

if TYPE_CHECKING:
    from rich.progress import Progress

_POLL_S = 0.5
_LINE_EVERY_S = 10.0
"""Where no bar can be drawn, how often a line says how far the run is."""
_PROTOCOL = b'{"headway":'
"""How lines begin in which a program reports its progress to headway."""
_TRAIN = "train"
"""The step in which the program runs."""
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
    if record.state is RunState.WAITING and not is_over(seen):
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
        here=site.settings.node,
        folder=folder,
        outputs=_outputs(folder) if record.node in (None, site.settings.node) else None,
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


def _outputs(folder: Path) -> list[str]:
    return sorted(str(path) for path in (folder / "outputs").rglob("*") if path.is_file())


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


class LogReader:
    """Reads a run's log on this node from where it left off, all attempts in order."""

    def __init__(self, site: Site, run_id: str) -> None:
        """At the beginning of the first attempt's log."""
        self._site = site
        self._run_id = run_id
        self._attempt = 1
        self._log = _AttemptLog(site, run_id, 1)

    def pieces(self, newest: int) -> Iterator[bytes]:
        """What has come since, up to the attempt *newest*."""
        while self._attempt <= newest:
            yield from self._log.new()
            if self._attempt == newest:
                return
            yield self._log.rest()
            self._attempt += 1
            self._log = _AttemptLog(self._site, self._run_id, self._attempt)

    def rest(self) -> bytes:
        """What was held back, when nothing more comes."""
        return self._log.rest()


def log_pieces(
    site: Site, server: PrefectServer, seen: FlowRun, *, follow: bool
) -> Iterator[bytes]:
    """The run's log in pieces, all attempts in order; with *follow* until the run has ended.

    Raises:
        LogElsewhere: The newest attempt's log is not on this node.
    """
    reader = LogReader(site, seen.run_id)
    while True:
        try:
            record = site.ledger.runs.get(seen.run_id)
        except RunUnknown:
            record = None
        over = is_over(seen)
        yield from reader.pieces(record.attempt if record is not None else 1)
        if record is not None:
            _refuse_elsewhere(site, record)
        if not follow or over:
            yield reader.rest()
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
    """Follow a run to its end: its states, its log, and a bar with the remaining time.

    Returns:
        The command's exit status.
    """
    from rich.console import Console  # noqa: PLC0415 - only for people who watch
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=machine)
    text = partial(TextColumn, markup=False)  # the log's own words are no markup
    columns = (text("{task.description}"), BarColumn(), text("{task.fields[says]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        watch = _Watch(site, run_id, progress, machine=machine)
        while True:
            try:
                seen = server.run(run_id)
            except SiteRefused:
                raise
            except SiteUnreachable as error:
                watch.tell_away(error)
                site.clock.sleep(2.0)
                continue
            watch.show(seen, _record(site, run_id))
            if is_over(seen):
                break
            site.clock.sleep(_POLL_S)
    view = details(site, seen, _record(site, run_id), server.api_url.removesuffix("/api"))
    if machine:
        sys.stdout.write(json.dumps(view, indent=2) + "\n")
    return outcome(seen.state_name)


class _Watch:
    """What a person who watches a run sees: on a terminal a bar below the log.

    Where there is no terminal, which shows no bar, how far the run is gets a
    line of its own now and then.
    """

    def __init__(self, site: Site, run_id: str, progress: "Progress", *, machine: bool) -> None:
        self._site = site
        self._progress = progress
        self._machine = machine
        self._log = LogReader(site, run_id)
        self._task = progress.add_task("waiting", total=None, says="")
        self._said = ""
        self._next_line_s = 0.0
        self._begun_line = b""

    def tell_away(self, error: SiteUnreachable) -> None:
        """The server does not answer for the moment; the run may well go on."""
        self._progress.update(self._task, says=str(error)[:60])

    def show(self, seen: FlowRun, record: RunRecord | None) -> None:
        """Show what is new since the last time."""
        if not self._machine:
            if record is not None and is_over(seen):
                self._show_log(record, over=True)
            line = _state_line(seen, record)
            if line != self._said:
                self._print(line)
                self._said = line
            if record is not None:
                self._show_log(record, over=False)
        if record is not None and record.state in (RunState.CLAIMED, RunState.RUNNING):
            self._show_progress(record)

    def _show_log(self, record: RunRecord, *, over: bool) -> None:
        data = self._begun_line + b"".join(self._log.pieces(record.attempt))
        whole, newline, self._begun_line = data.rpartition(b"\n")
        if over:
            whole = data + self._log.rest()
            newline = b"\n" if whole else b""
        for line in whole.split(b"\n") if newline else ():
            # What a bar wrote over itself is not shown, nor what our own bar says.
            shown = line.rstrip(b"\r").rpartition(b"\r")[2]
            if not shown.startswith(_PROTOCOL):
                self._print(log_line(shown))

    def _show_progress(self, record: RunRecord) -> None:
        ledger = self._site.ledger
        point = ledger.progress.latest(record.run_id)
        left_s = _remaining_s(self._site, record)
        says = ["remaining time not known yet" if left_s is None else _left(left_s)]
        done: float | None = None
        total = None
        if point is not None:
            says += [
                f"{plain(name)} {value:.4g}" for name, value in list(point.metrics.items())[:3]
            ]
            done, total = point.iteration, point.total
            done = point.epoch if done is None else done
        under_way = [s.name for s in ledger.runs.steps(record.run_id) if s.ended_at is None]
        step = under_way[-1] if under_way else "starting"
        at = "" if done is None else f" {done:g}" + (f" of {total:g}" if total else "")
        words = ", ".join(says) if step == _TRAIN else ""
        self._progress.update(
            self._task, completed=done or 0, total=total, description=step + at, says=words
        )
        now_s = self._site.clock.monotonic_s()
        if not self._progress.console.is_terminal and now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_EVERY_S
            if not self._machine:
                self._print(f"{step}{at}" + (f": {words}" if words else ""))

    def _print(self, line: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - only for people who watch

        self._progress.console.print(Text(line), soft_wrap=True)  # no markup


def _left(seconds: float) -> str:
    return f"{format_duration(seconds)} left"


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
    return plain(f"{seen.state_name}" + (f": {reason}" if reason else ""))


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
