"""What a run shows of itself in the Prefect UI while its container runs."""

from collections.abc import Sequence
from dataclasses import replace
from logging import Logger
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.logging.loggers import LoggingAdapter

from flows.portrait import Portrait
from headway.clock import Clock
from headway.errors import shown
from headway.estimate.remaining.model import Basis
from headway.model.profile import Profile
from headway.model.run import Measurement, Prediction
from headway.model.run_warning import RunWarning, Silent
from headway.profile.text import rows, summary
from headway.run.follow import Watched
from headway.units import format_duration, format_size
from headway.views.run_document import comparison
from headway.views.terminal import log_line

_UPDATE_EVERY_S = 2.0
_LINES_PER_S = 20.0
_BURST_LINES = 200.0


class Display:
    """Log lines, a progress bar and a remaining-time line, thinned for the server's sake.

    Prefect being away never disturbs the run: what could not be shown is
    shown with the next update.
    """

    def __init__(
        self, logger: LoggingAdapter | Logger, clock: Clock, portrait: Portrait | None = None
    ) -> None:
        """Show on the run's page through *logger* and artifacts, and draw *portrait* if given."""
        self._logger = logger
        self._portrait = portrait
        self._clock = clock
        self._next_update_s = clock.monotonic_s()
        self._bar: UUID | None = None
        self._line: UUID | None = None
        self._warnings: UUID | None = None
        self._warned: dict[tuple[str, str], RunWarning] = {}
        self._said = ""
        self._partial = b""
        self._allowance = _BURST_LINES
        self._allowance_at_s = clock.monotonic_s()
        self._left_out = 0
        self._last: Watched | None = None
        self._over = False

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        """Forward log lines to the run's page, at most some twenty a second."""
        if skipped_bytes:
            self._logger.warning(
                "%s of log were given up: the log limit was reached", format_size(skipped_bytes)
            )
        *complete, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-4096:]
        now = self._clock.monotonic_s()
        refill = (now - self._allowance_at_s) * _LINES_PER_S
        self._allowance = min(self._allowance + refill, _BURST_LINES)
        self._allowance_at_s = now
        for line in complete:
            if self._allowance < 1:
                self._left_out += 1
                continue
            self._allowance -= 1
            self._say_what_was_left_out()
            text = log_line(line.rsplit(b"\r", 1)[-1]).rstrip()
            if text:
                self._logger.info("%s", text[:2000])

    def watched(self, now: Watched) -> None:
        """Move the progress bar and the remaining-time line, every two seconds."""
        self._last = now
        for warning in now.begun:
            self._logger.warning("%s: it %s", warning.failure.kind.value, warning.failure.text)
        if self._portrait is not None:
            self._portrait.watched(now)
        if self._clock.monotonic_s() < self._next_update_s:
            return
        self._next_update_s = self._clock.monotonic_s() + _UPDATE_EVERY_S
        try:
            self._update(now)
        except Exception as error:  # noqa: BLE001 - the picture must never end the run
            self._logger.debug("progress could not be shown: %s", error)

    def close(self) -> None:
        """The container has ended: say what was left out, and leave a full picture."""
        self._say_what_was_left_out()
        if self._last is not None:
            self._next_update_s = self._clock.monotonic_s()
            self._over = True
            self.watched(replace(self._last, begun=()))

    def _say_what_was_left_out(self) -> None:
        if self._left_out:
            self._logger.info("… %d more lines; `headway logs` has all of them", self._left_out)
            self._left_out = 0

    def _update(self, now: Watched) -> None:
        share, said = _share(now), _line(now, over=self._over)
        if self._bar is None:
            # Called from a synchronous flow, so these are ids, not coroutines.
            bar = create_progress_artifact(share, key="progress", description="Training")
            line = create_markdown_artifact(
                said, key="remaining-time", description="How far it is, and how long it takes"
            )
            self._bar, self._line = cast("UUID", bar), cast("UUID", line)
            return
        self._write(self._bar, share)
        if self._line is not None:
            self._write(self._line, said)
        self._update_warnings(now)

    def _update_warnings(self, now: Watched) -> None:
        """Keep an artifact of what went and goes wrong; none as long as nothing did."""
        self._warned |= {(each.failure.kind, each.failure.gpu): each for each in now.warnings}
        if not self._warned:
            return
        text = warnings_text(list(self._warned.values()), now.warnings)
        if self._warnings is None:
            made = create_markdown_artifact(
                text, key="warnings", description="What goes wrong without an error"
            )
            self._warnings = cast("UUID", made)
        elif text != self._said:
            self._write(self._warnings, text)
        self._said = text

    def _write(self, artifact: UUID, data: object) -> None:
        with get_client(sync_client=True) as client:
            client.update_artifact(artifact, ArtifactUpdate(data=data))


def _share(now: Watched) -> float:
    """Percent done: by iterations where known, else by time."""
    if now.done_frac is not None:
        return round(100.0 * now.done_frac, 1)
    if now.remaining is not None and now.remaining.remaining_s is not None:
        whole_s = now.elapsed_s + now.remaining.remaining_s
        return round(100.0 * now.elapsed_s / whole_s, 1) if whole_s > 0 else 0.0
    return 0.0


def _line(now: Watched, *, over: bool = False) -> str:
    """How the run stands; once its container has ended (*over*), how far it came."""
    parts = [f"{'ran' if over else 'running'} for {format_duration(now.elapsed_s)}"]
    if now.point is not None:
        done = now.point.iteration if now.point.iteration is not None else now.point.epoch
        of = f" of {now.point.total}" if now.point.total else ""
        parts.append(f"at {done:g}{of}" if done is not None else "")
        parts += [f"{shown(name, 40)[1:-1]} {v:.4g}" for name, v in now.point.metrics.items()][:6]
    if over:
        return ", ".join(part for part in (*parts, "**it has ended**") if part)
    left = now.remaining
    if left is not None and left.remaining_s is not None:
        spread = ""
        if left.low_s is not None and left.high_s is not None:
            spread = f" ({format_duration(left.low_s)} to {format_duration(left.high_s)})"
        parts.append(f"**{format_duration(left.remaining_s)} left**{spread}")
    else:
        parts.append("remaining time not known yet")
    if left is not None and left.basis is Basis.STALLED:
        parts.append(f"**no progress for {left.overdue:.0f} expected reports**")
    parts += [f"**{_WORDS[each.failure.kind]}**" for each in now.warnings]
    return ", ".join(part for part in parts if part)


_WORDS = {
    Silent.GPU_UNUSED: "holds a GPU and does not use it",
    Silent.OVER_GRANT: "holds more GPU memory than it was granted",
    Silent.STARVED: "its GPU waits for data",
    Silent.GPU_LOST: "a GPU that it holds was lost",
}


def warnings_text(fired: Sequence[RunWarning], going_on: Sequence[RunWarning]) -> str:
    """What went wrong silently and what still does, as a Markdown list."""
    rows = []
    for warning in fired:
        goes_on = warning in going_on
        until = "goes on" if goes_on else "no longer so"
        text = f"**{_WORDS[warning.failure.kind]}**: it {shown(warning.failure.text, 400)[1:-1]}"
        rows.append(f"- {text} (since {warning.began_at:%d %b %H:%M:%S} UTC; {until})")
    return "\n".join(rows)


def show_comparison(predicted: Prediction, measured: Measurement) -> None:
    """Put what was predicted beside what was measured, as a table on the run's page."""
    create_table_artifact(
        comparison(predicted, measured),
        key="predicted-and-measured",
        description="What was said before the start beside what the run took.",
    )


def show_profile(profile: Profile) -> None:
    """Put a profile on the run's page: copies against what the links carry, and kernels."""
    notes = [{"what": note, "over": "note", "where": ""} for note in profile.notes]
    create_table_artifact(
        rows(profile) + notes, key="profile", description=f"Profile by {summary(profile)}."
    )


def show_story(text: str) -> None:
    """Leave the whole story of the run on its page, as Markdown."""
    create_markdown_artifact(
        text, key="story", description="What was asked, decided, used and left behind."
    )
