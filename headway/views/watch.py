"""Looking at a run from outside: its details, its log, its way to the end."""

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from headway.errors import LedgerUnreachable, RunUnknown, SiteRefused, SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.prefect.client import ListedRun, PrefectServer
from headway.site import Site
from headway.units import format_duration
from headway.views.logs import LogReader
from headway.views.run_details import details
from headway.views.run_document import is_over, outcome
from headway.views.site_snapshot import progress_of_runs, remaining_s_of
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

    def show(self, seen: ListedRun, record: RunRecord | None) -> None:
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
        (standing,) = progress_of_runs(self._site, [record])
        left_s = remaining_s_of(standing)
        says = ["remaining time not known yet" if left_s is None else _left(left_s)]
        done: float | None = None
        total = None
        if point is not None:
            says += [
                f"{plain(name)} {value:.4g}" for name, value in list(point.metrics.items())[:3]
            ]
            done, total = point.iteration, point.total
            done = point.epoch if done is None else done
        under_way = [s.name for s in ledger.steps.of_run(record.run_id) if s.ended_at is None]
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


def _state_line(seen: ListedRun, record: RunRecord | None) -> str:
    reason = seen.message
    if record is not None and record.state is RunState.WAITING and record.reason:
        # The state's message has place and expected start, too.
        reason = reason if reason.startswith(record.reason) else record.reason
    return plain(f"{seen.state_name}" + (f": {reason}" if reason else ""))
