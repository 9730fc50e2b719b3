"""A run's log on its page, thinned for the server's sake."""

from logging import Logger

from prefect.logging.loggers import LoggingAdapter

from headway.clock import Clock
from headway.units import format_size
from headway.views.terminal import log_line

_LINES_PER_S = 20.0
_BURST_LINES = 200.0
_LONGEST_LINE = 2000
_LONGEST_PARTIAL = 4096


class LogLines:
    """Forwards lines as they come, at most some twenty a second after a burst."""

    def __init__(self, logger: LoggingAdapter | Logger, clock: Clock) -> None:
        """Forward to *logger*."""
        self._logger = logger
        self._clock = clock
        self._partial = b""
        self._allowance = _BURST_LINES
        self._allowance_at_s = clock.monotonic_s()
        self._left_out = 0

    def add(self, data: bytes, skipped_bytes: int) -> None:
        """Forward the lines that *data* completes; *skipped_bytes* before it are left out."""
        if skipped_bytes:
            self._logger.warning(
                "%s of log are not shown: it came faster than it is read, or is over its limit",
                format_size(skipped_bytes),
            )
        *complete, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-_LONGEST_PARTIAL:]
        now_s = self._clock.monotonic_s()
        refill = (now_s - self._allowance_at_s) * _LINES_PER_S
        self._allowance = min(self._allowance + refill, _BURST_LINES)
        self._allowance_at_s = now_s
        for line in complete:
            if self._allowance < 1:
                self._left_out += 1
                continue
            self._allowance -= 1
            self.say_what_was_left_out()
            text = log_line(line.rsplit(b"\r", 1)[-1]).rstrip()
            if text:
                self._logger.info("%s", text[:_LONGEST_LINE])

    def say_what_was_left_out(self) -> None:
        """Say how many lines were not forwarded since it was last said."""
        if self._left_out:
            self._logger.info("… %d more lines; `headway logs` has all of them", self._left_out)
            self._left_out = 0
