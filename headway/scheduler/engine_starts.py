"""When the waiting runs of an engine's pool start, by what came of the engine's own forecasts."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from headway.clock import Clock, NowAndThen
from headway.estimate.starts import EngineStarts, of_engine
from headway.ledger import Ledger
from headway.model.run import Span
from headway.model.start_forecast import StartForecast

_AGAIN = timedelta(hours=1)
_LEARNT_EVERY_S = 600.0
_LOOKED_AT = 500
"""So many of the newest forecasts: a cluster's habits change."""


class SaidByEngine:
    """What an engine says of when runs of one pool start, each kept to be scored by its start."""

    def __init__(self, ledger: Ledger, clock: Clock, pool: str) -> None:
        """As *ledger* has it of that *pool*."""
        self._ledger, self._clock, self._pool = ledger, clock, pool
        self._due = NowAndThen(clock, _LEARNT_EVERY_S)
        self._learnt = EngineStarts()
        self._last: dict[str, tuple[datetime, datetime, str]] = {}
        """By run: the engine's forecast, when it was kept last, and what is said of it."""
        self._new: list[StartForecast] = []

    def about(self, run_id: str, expected_at: datetime, gpus: int) -> str:
        """What has come of forecasts like this one, as a range; empty while too few are known.

        Said anew when the engine says something else: it does not move with the clock.
        """
        now = self._clock.now()
        before = self._last.get(run_id)
        if before is not None and before[0] == expected_at and now - before[1] < _AGAIN:
            return before[2]
        planned_s = max((expected_at - now).total_seconds(), 0.0)
        found = self._known().wait(planned_s)
        said = "" if found is None else f"; {self._words(now, found)}"
        if before is None or now - before[1] >= _AGAIN:
            wait = found or Span(planned_s, planned_s, planned_s)
            low, middle, high = (now + timedelta(seconds=each) for each in wait)
            self._new.append(
                StartForecast(
                    run_id,
                    now,
                    planned_s,
                    planned_s,
                    planned_s,
                    low,
                    middle,
                    high,
                    gpus,
                    0,
                    before is None,
                )
            )
            self._last[run_id] = expected_at, now, said
        else:
            self._last[run_id] = expected_at, before[1], said
        return said

    def over(self, run_id: str) -> None:
        """It waits no more."""
        self._last.pop(run_id, None)

    def keep(self) -> None:
        """Keep what was said in this round."""
        new, self._new = self._new, []
        if new:
            self._ledger.starts.keep(new)

    def _known(self) -> EngineStarts:
        if self._due.is_due():
            self._ledger.starts.settle()
            past: Sequence[StartForecast] = self._ledger.starts.newest(_LOOKED_AT, self._pool)
            self._learnt = of_engine(past, self._clock.now())
        return self._learnt

    def _words(self, now: datetime, wait: Span) -> str:
        low, middle, high = (f"{now + timedelta(seconds=each):%d %b %H:%M}" for each in wait)
        learnt = self._learnt
        text = f"by what came of {learnt.starts} of its forecasts, between {low} and {high} UTC"
        text += f", about {middle}; its own were off by {learnt.error_frac:.0%} of the wait"
        if learnt.said:
            text += f", and {learnt.held} of {learnt.said} such ranges held"
        return text
