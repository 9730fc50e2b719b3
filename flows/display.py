"""What a run shows of itself in the Prefect UI while its container runs."""

from collections.abc import Sequence
from logging import Logger

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
)
from prefect.logging.loggers import LoggingAdapter

from flows.log_lines import LogLines
from flows.page import Artifact
from headway.clock import Clock
from headway.errors import shown
from headway.model.profile import Profile
from headway.model.run import Measurement, Prediction, Span
from headway.model.run_warning import RunWarning, Silent
from headway.model.session import session_link
from headway.profile.text import rows, summary
from headway.run.follow import Watched
from headway.units import format_duration
from headway.views.run_document import comparison
from headway.views.tables import BY_OTHERS, left_text, place_text, unknown_text

_UPDATE_EVERY_S = 2.0


class Display:
    """Log lines, a progress bar, a remaining-time line, and warnings.

    Prefect being away never disturbs the run: what could not be shown is
    shown with the next update.
    """

    def __init__(self, logger: LoggingAdapter | Logger, clock: Clock, *, below: str = "") -> None:
        """Show on the run's page through *logger* and artifacts.

        What is *below* stands under the remaining time, as Markdown.
        """
        self._logger = logger
        self._log_lines = LogLines(logger, clock)
        self._clock = clock
        self._below = f"\n\n{below}" if below else ""
        self._next_update_s = clock.monotonic_s() + _UPDATE_EVERY_S
        self._bar = Artifact(create_progress_artifact, key="progress", description="Training")
        self._line = Artifact(
            create_markdown_artifact,
            key="remaining-time",
            description="How far it is, and how long it takes",
        )
        self._warnings = Artifact(
            create_markdown_artifact,
            key="warnings",
            description="What goes wrong without an error",
        )
        self._warned: dict[tuple[str, str], RunWarning] = {}
        self._last: Watched | None = None
        self._updated = False

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        """Forward what was logged; *skipped_bytes* of the log before it are left out."""
        self._log_lines.add(data, skipped_bytes)

    def watched(self, now: Watched) -> None:
        """Move the progress bar and the remaining-time line, every two seconds."""
        self._last = now
        for warning in now.begun:
            self._logger.warning("%s: it %s", warning.failure.kind.value, warning.failure.text)
        if self._clock.monotonic_s() >= self._next_update_s:
            self._next_update_s = self._clock.monotonic_s() + _UPDATE_EVERY_S
            self._update(now, over=False)

    def close(self) -> None:
        """The container has ended: say what was left out, and how far it came.

        Of a run that ended before anything was shown its report says it all.
        """
        self._log_lines.say_what_was_left_out()
        if self._last is not None and (self._updated or self._last.warnings):
            self._update(self._last, over=True)

    def _update(self, now: Watched, *, over: bool) -> None:
        self._updated = True
        try:
            if now.done_frac is not None:
                self._bar.show(round(100.0 * now.done_frac, 1))
            self._line.show(_line(now, over=over) + self._below)
            self._warned |= {(each.failure.kind, each.failure.gpu): each for each in now.warnings}
            if self._warned:  # no artifact of them as long as nothing went wrong
                self._warnings.show(warnings_text(list(self._warned.values()), now.warnings))
        except Exception as error:  # noqa: BLE001 - the display must never end the run
            self._logger.debug("progress could not be shown: %s", error)


def _line(now: Watched, *, over: bool = False) -> str:
    """How the run stands; once its container has ended (*over*), how far it came."""
    parts = [f"{'ran' if over else 'running'} for {format_duration(now.elapsed_s)}"]
    if now.point is not None:
        parts.append(place_text(now.point))
        parts += [f"{shown(name, 40)[1:-1]} {v:.4g}" for name, v in now.point.metrics.items()][:6]
    if over:
        return ", ".join(part for part in (*parts, "**it has ended**") if part)
    if now.point is not None and now.done_frac is None and parts[1]:
        parts.append(unknown_text(now.per_s))
    left = now.remaining
    if left is None or left.remaining_s is None or left.low_s is None or left.high_s is None:
        parts.append("remaining time not known yet")
    else:
        is_by_others = now.done_frac is None
        span = Span(left.low_s, left.remaining_s, left.high_s)
        parts.append(f"**{left_text(span, is_range=is_by_others)}**")
        parts += [BY_OTHERS] if is_by_others else []
    if left is not None and left.overdue:
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
    entries = []
    for warning in fired:
        until = "goes on" if warning in going_on else "no longer so"
        text = f"**{_WORDS[warning.failure.kind]}**: it {shown(warning.failure.text, 400)[1:-1]}"
        entries.append(f"- {text} (since {warning.began_at:%d %b %H:%M:%S} UTC; {until})")
    return "\n".join(entries)


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


def show_session(run_id: str) -> None:
    """Put the way to a session's page on the run's page; it leads its owner there."""
    create_markdown_artifact(
        f"[Open the session]({session_link(run_id)})", key="session", description="Its own page."
    )


def show_report(text: str) -> None:
    """Leave the report of the run on its page, as Markdown."""
    create_markdown_artifact(
        text, key="story", description="What was asked, decided, used and left behind."
    )
