"""When waiting runs start: intervals that keep their word, and how well starts were said.

The queue is played forward many times (`replay.forward`). Runs last longer or shorter than what is
drawn for them, and others join; how far off that is differs by site. So each end of the interval
that is planned is multiplied by what came of such ends lately: by the quantile of the ratio that it
stands for (conformalized quantile regression, Romano and others 2019). The middle stays as it was
played: to learn it, too, helped on some streams and harmed on others (see
docs/development/estimates.md). Runs that still wait count for as long as they
have waited: else only short waits would teach.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from headway.estimate.survival import Survival
from headway.model.run import Span
from headway.model.start_forecast import StartForecast
from headway.units import DAY_S, HOUR_S, MINUTE_S

CALIBRATION, PLAYED = "start_calibration", "played_starts:{}"
"""The ledger's settings in which a `StartCalibration` and, for each pool, `PlayedStarts` are."""
FAR_S = 10 * 365 * DAY_S
"""No start is said to be farther off: it would be no date."""
LOOKED_AT = 5000
"""So many of the newest forecasts whose runs have started are looked at."""


class Ratios(NamedTuple):
    """By how much each end of the interval is multiplied."""

    low: float
    high: float


_PRIOR = Ratios(0.67, 3.2)
"""Before anything is learnt: of two streams of Philly, see docs/development/estimates.md."""
_PRIOR_HOURS = 1000.0
"""It counts as so many hours in which something was said: waits differ from week to week."""
_FRACS = Ratios(0.1, 0.9)
"""The quantiles that they stand for."""


@dataclass(frozen=True, slots=True)
class StartCalibration:
    """What was learnt of the waits that were planned on a site."""

    ratios: Ratios = _PRIOR

    def wait(self, planned: Span) -> Span:
        """How long a run waits with its 80 % interval, where *planned* is what was played."""
        median_s = planned.median_s
        low_s = max((planned.low_s + MINUTE_S) * self.ratios.low - MINUTE_S, 0.0)
        high_s = (planned.high_s + MINUTE_S) * self.ratios.high - MINUTE_S
        return Span(min(low_s, median_s), median_s, max(median_s, high_s))

    def forecast(
        self, run_id: str, at: datetime, planned: Span, *, gpus: int, ahead: int, first: bool
    ) -> StartForecast:
        """What is said *at* that moment of a run; *first* for the first that is said of it."""
        low, median, high = (at + timedelta(seconds=min(s, FAR_S)) for s in self.wait(planned))
        return StartForecast(
            run_id, at, planned.median_s, planned.low_s, planned.high_s, low, median, high,
            gpus, ahead, first,
        )  # fmt: skip


_LEAST = 10
"""So many starts of runs teach what comes of an engine's forecasts."""


@dataclass(frozen=True, slots=True)
class EngineStarts:
    """What came of an engine's own forecasts in one pool, which go by its jobs' time limits."""

    starts: int = 0
    """Forecasts whose runs have started."""
    error_frac: float = 0.0
    """How far off the engine's own were, by the wait: the median."""
    said: int = 0
    """Those for which a range was told …"""
    held: int = 0
    """… and where the run started within it."""
    ratios: Span | None = None
    """By how much the engine's wait is multiplied; None while too few have started."""

    def wait(self, planned_s: float) -> Span | None:
        """How long a run waits, with its 80 % interval, that is to wait *planned_s*."""
        if self.ratios is None:
            return None
        return Span(*(max((planned_s + MINUTE_S) * each - MINUTE_S, 0.0) for each in self.ratios))


def of_engine(forecasts: Sequence[StartForecast], now: datetime) -> EngineStarts:
    """What an engine's *forecasts* teach by *now*; those of runs that wait still count, too."""
    came = [said for said in forecasts if said.started_at is not None]
    logs = [
        (
            math.log((said.waited_s_by(now) + MINUTE_S) / (said.planned_s + MINUTE_S)),
            said.started_at is not None,
        )
        for said in forecasts
    ]
    learnt = Survival.of(logs)
    longest = max((each for each, _ in logs), default=0.0)
    found = [learnt.quantile(frac) for frac in (_FRACS.low, 0.5, _FRACS.high)]
    low, middle, high = (math.exp(longest if each is None else each) for each in found)
    told = [said for said in came if said.latest_at > said.earliest_at]
    errors = [
        abs(said.planned_s - (said.waited_s or 0.0)) / max(said.waited_s or 0.0, MINUTE_S)
        for said in came
    ]
    return EngineStarts(
        len(came),
        statistics.median(errors) if errors else 0.0,
        len(told),
        sum(said.earliest_at <= said.started_at <= said.latest_at for said in told),  # type: ignore[operator]
        Span(low, middle, high) if len(came) >= _LEAST else None,
    )


class StartScore(NamedTuple):
    """How well starts were said."""

    starts: int
    """Forecasts whose runs have started since."""
    coverage_frac: float
    """Share of the starts that lay within their 80 % interval."""
    waited: int
    """Those of them whose runs waited a minute or more …"""
    median_error_frac: float | None
    """… and how far off their expected starts were, by the wait: the median; None without any."""


def learn(forecasts: Sequence[StartForecast], now: datetime) -> StartCalibration:
    """What *forecasts* teach by *now*, of runs that have started and of those that wait still.

    Runs that wait at the same time wait for the same: all that was said in one hour counts once.
    """
    hours = {said.said_at.timestamp() // HOUR_S for said in forecasts if said.started_at}
    if not hours:
        return StartCalibration()
    part = len(hours) / (len(hours) + _PRIOR_HOURS)

    def ratio(end: Callable[[StartForecast], float], frac: float, prior: float) -> float:
        # A minute more on both sides: a wait of next to nothing has no ratio.
        logs = [
            math.log((said.waited_s_by(now) + MINUTE_S) / (end(said) + MINUTE_S))
            for said in forecasts
        ]
        over = [said.started_at is not None for said in forecasts]
        found = Survival.of(zip(logs, over, strict=True)).quantile(frac)
        seen = max(logs) if found is None else found
        return math.exp(part * seen + (1.0 - part) * math.log(prior))

    ends = (lambda said: said.planned_low_s, lambda said: said.planned_high_s)
    return StartCalibration(Ratios(*map(ratio, ends, _FRACS, _PRIOR)))


def score(forecasts: Iterable[StartForecast]) -> StartScore | None:
    """How well *forecasts* said what came; None where no run has started."""
    came = [said for said in forecasts if said.started_at is not None]
    if not came:
        return None
    within = [said.earliest_at <= said.started_at <= said.latest_at for said in came]  # type: ignore[operator]
    errors = [
        abs((said.expected_at - said.said_at).total_seconds() - waited_s) / waited_s
        for said in came
        if (waited_s := said.waited_s or 0.0) >= MINUTE_S
    ]
    middle = statistics.median(errors) if errors else None
    return StartScore(len(came), statistics.mean(within), len(errors), middle)


def scores_document(forecasts: Sequence[StartForecast]) -> list[dict[str, Any]]:
    """How well starts were said: when their runs joined the queue, and while they waited."""
    parts = {
        "when it joined the queue": [said for said in forecasts if said.at_submission],
        "each hour after": [said for said in forecasts if not said.at_submission],
    }
    return [
        {"said": name, **found._asdict()}
        for name, part in parts.items()
        if (found := score(part)) is not None
    ]
