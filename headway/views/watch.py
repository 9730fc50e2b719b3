"""Looking at a run from outside: its details, its log, its way to the end."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headway.clock import Clock
from headway.errors import GatewayRefused, SiteUnreachable, may_come_back
from headway.model.run import ExitKind
from headway.views.tables import array_counts, end_text
from headway.views.terminal import log_line, plain

if TYPE_CHECKING:
    from rich.progress import Progress

_POLL_S = 1.0
_AWAY_S = 2.0
_LINE_EVERY_S = 10.0
"""Where no bar can be drawn, how often a line says how far the run is."""
_PROTOCOL = b'{"headway":'
"""How lines begin in which a program reports its progress to headway."""
_TRAIN = "train"
"""The step in which the program runs."""


class Log(Protocol):
    """A run's log."""

    def new(self) -> Iterator[bytes]:
        """What has come since it was last asked."""


class Gateway(Protocol):
    """What is asked about a run that is watched; `headway.client.Client` is one."""

    def standing(self, run: str) -> dict[str, Any]:
        """How it stands."""

    def run(self, run: str) -> dict[str, Any]:
        """All about it."""

    def log_of(self, run_id: str) -> Log:
        """Its log."""

    def array(self, array: str, *, members: bool = True) -> dict[str, Any]:
        """How an array stands; with *members* each of those that have become runs."""


def outcome(state: str) -> int:
    """Exit status of the command line for a run that ended in *state*."""
    return 0 if state == "Completed" else 1


def watch_run(gateway: Gateway, run_id: str, clock: Clock, *, machine: bool) -> int:
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
        watch = _Watch(gateway.log_of(run_id), clock, progress, machine=machine)

        def look() -> tuple[dict[str, Any], bool]:
            view = gateway.standing(run_id)
            watch.show(view)
            return view, view["over"]

        view = _until_over(look, watch.tell_away, clock)
    if machine:
        sys.stdout.write(json.dumps(gateway.run(run_id), indent=2) + "\n")
    return outcome(view["state"])


def _until_over(
    look: Callable[[], tuple[dict[str, Any], bool]],
    tell_away: Callable[[Exception], None],
    clock: Clock,
) -> dict[str, Any]:
    """*look* again and again until it is over; what was seen last.

    A gateway that is away for the moment is asked again.
    """
    while True:
        try:
            view, over = look()
        except (SiteUnreachable, GatewayRefused) as error:
            if not may_come_back(error):
                raise
            tell_away(error)
            clock.sleep(_AWAY_S)
            continue
        if over:
            return view
        clock.sleep(_POLL_S)


class _Watch:
    """What a person who watches a run sees: on a terminal a bar below the log.

    Where there is no terminal, which shows no bar, how far the run is gets a
    line of its own now and then.
    """

    def __init__(self, log: Log, clock: Clock, progress: "Progress", *, machine: bool) -> None:
        self._log = log
        self._clock = clock
        self._progress = progress
        self._machine = machine
        self._task = progress.add_task("waiting", total=None, says="")
        self._said = ""
        self._next_line_s = 0.0
        self._begun_line = b""
        self._away = False

    def tell_away(self, error: Exception) -> None:
        """The gateway does not answer for the moment; the run may well go on."""
        self._progress.update(self._task, says=str(error)[:60])
        if not (self._away or self._progress.console.is_terminal):  # there no bar says so
            self._print(f"{plain(str(error))}; the run may well go on, and is asked about again")
        self._away = True

    def show(self, view: dict[str, Any]) -> None:
        """Show what is new since the last time."""
        self._away = False
        if not self._machine:
            begun = view["started_at"] is not None or view["attempt"] > 1
            if view["over"]:
                self._show_log(begun=begun, over=True)
            line = state_line(view)
            if line != self._said:
                self._print(line)
                self._said = line
            if not view["over"]:
                self._show_log(begun=begun, over=False)
        if view["step"] is not None and not view["over"]:
            self._show_progress(view)

    def _show_log(self, *, begun: bool, over: bool) -> None:
        data = self._begun_line
        if begun:
            data += b"".join(self._log.new())
        whole, newline, self._begun_line = data.rpartition(b"\n")
        if over:
            whole, newline, self._begun_line = data, data and b"\n", b""
        for line in whole.split(b"\n") if newline else ():
            # What a bar wrote over itself is not shown, nor what our own bar says.
            shown = line.rstrip(b"\r").rpartition(b"\r")[2]
            if not shown.startswith(_PROTOCOL):
                self._print(log_line(shown))

    def _show_progress(self, view: dict[str, Any]) -> None:
        point = view["progress"]
        says = [view["progress_text"] or "remaining time not known yet"]
        done = total = None
        if point is not None:
            metrics = list(point["metrics"].items())[:3]
            says += [f"{plain(name)} {value:.4g}" for name, value in metrics]
            total = point["total"]
            done = point["epoch"] if point["iteration"] is None else point["iteration"]
        step = view["step"]
        words = ", ".join(says) if step == _TRAIN else ""
        self._progress.update(
            self._task, completed=done or 0, total=total, description=step, says=words
        )
        now_s = self._clock.monotonic_s()
        if not self._progress.console.is_terminal and now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_EVERY_S
            if not self._machine:
                self._print(step + (f": {words}" if words else ""))

    def _print(self, line: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - only for people who watch

        self._progress.console.print(Text(line), soft_wrap=True)  # no markup


def state_line(view: dict[str, Any]) -> str:
    """The state of a run that stands as *view*, and what it waits for or how it ended."""
    # The state's message has place and expected start, too.
    message, reason = view["message"], view["reason"]
    said = message if message.startswith(reason) else reason
    return plain(f"{view['state']}" + (f": {said}" if said else ""))


_REASONS = 5
"""So many ways in which members failed are told."""
_NO_FAILURES = frozenset({ExitKind.OK, ExitKind.CANCELLED})
_OVER = frozenset({"Completed", "Failed", "Cancelled"})


def watch_array(gateway: Gateway, array_id: str, clock: Clock, *, machine: bool) -> int:
    """Follow an array until its last member has ended: counts, a bar and the expected end.

    Returns:
        The command's exit status: 0 where all members ended well.
    """
    from rich.console import Console  # noqa: PLC0415 - only for people who watch
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=machine)
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    next_line_s = clock.monotonic_s()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("waiting", total=None)

        def look() -> tuple[dict[str, Any], bool]:
            nonlocal next_line_s
            view = gateway.array(array_id, members=False)
            ended = view["ended_well"] + view["failed"] + view["cancelled"]
            said = f"{array_counts(view)}{end_text(view)}"
            bar.update(task, completed=ended, total=view["size"], description=said)
            over = view["state"] in _OVER
            silent = machine or over or console.is_terminal
            if not silent and clock.monotonic_s() >= next_line_s:
                next_line_s = clock.monotonic_s() + _LINE_EVERY_S
                console.print(said, soft_wrap=True, highlight=False)
            return view, over

        def tell_away(error: Exception) -> None:
            bar.update(task, description=plain(str(error))[:60])

        view = _until_over(look, tell_away, clock)
    if machine:
        sys.stdout.write(json.dumps(gateway.array(array_id), indent=2) + "\n")
    else:
        console.print(f"{view['state']}: {array_counts(view)}", soft_wrap=True, highlight=False)
        if view["failed"]:
            for line in _failures(gateway.array(array_id)["members"]):
                console.print(line, soft_wrap=True, highlight=False, markup=False)
    return outcome(view["state"])


def _failures(members: Sequence[Mapping[str, Any]]) -> list[str]:
    """How members failed: each way once, the most frequent first, with one that ended so."""
    of_reason = Counter[str]()
    one: dict[str, str] = {}
    for member in members:
        if member["exit"] and member["exit"]["kind"] not in _NO_FAILURES:
            reason = plain(member["exit"]["message"])
            of_reason[reason] += 1
            one.setdefault(reason, member["name"])
    return [
        f"{count} × {reason} (headway show {one[reason]})"
        for reason, count in of_reason.most_common(_REASONS)
    ]
