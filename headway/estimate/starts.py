"""When waiting runs start: intervals that keep their word, and how well starts were said.

The plan plays the queue forward as it is now. Who will join it and pass, nobody knows, and runs
last longer or shorter than was predicted; how far off that is differs by site. So the wait that is
planned is multiplied by what came of such waits lately: quantiles of the ratio by split conformal
prediction, learnt apart by the size of the run and by the length of the queue.
"""

import logging
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from headway.model.run import Span
from headway.model.start_forecast import StartForecast
from headway.units import MINUTE_S

log = logging.getLogger(__name__)

LOOKED_AT = 5000
"""So many of the newest forecasts whose runs have started are looked at."""
_FEWEST = 300
_FEWEST_OF_ALL = 30
"""Of a group, and of all together, to learn from; the tails of fewer are hardly known."""
_ALL = "all"
_SIZES = (0, 1, 8)
_LOADS = (0, 4, 16, 64)
"""Groups end at so many GPUs, and at so many runs ahead."""


class Ratios(NamedTuple):
    """What came by what was planned: quantiles of 10 %, 50 % and 90 %."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class StartCalibration:
    """What was learnt of the plan's waits on a site; nothing in the beginning."""

    ratios: Mapping[str, Ratios] = field(default_factory=dict)
    """By group: see `_groups`."""

    def wait(self, planned: Span, *, gpus: int, ahead: int) -> Span:
        """How long a run waits with its 80 % interval, where *planned* is what the plan says."""
        for group in _groups(gpus, ahead):
            if (found := self.ratios.get(group)) is not None:
                softened_s = planned.median_s + MINUTE_S
                return Span(*(max(softened_s * ratio - MINUTE_S, 0.0) for ratio in found))
        return planned


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


def calibration_of(document: object) -> StartCalibration:
    """What was kept of a `StartCalibration`; one that cannot be read is as none."""
    try:
        return _KEPT.validate_python(document or {})
    except ValidationError:
        log.warning("what was learnt of starts cannot be read and is left aside: %r", document)
        return StartCalibration()


def calibration_document(learnt: StartCalibration) -> dict[str, Any]:
    """*learnt* as the ledger keeps it."""
    return {"ratios": {group: list(each) for group, each in learnt.ratios.items()}}


def learn(forecasts: Iterable[StartForecast]) -> StartCalibration:
    """What *forecasts* teach; those whose runs have not started yet teach nothing."""
    logs: dict[str, list[float]] = {}
    for said in forecasts:
        if said.waited_s is None:
            continue
        # A minute more on both sides: a wait of next to nothing has no ratio.
        log = math.log((said.waited_s + MINUTE_S) / (max(said.planned_s, 0.0) + MINUTE_S))
        for group in _groups(said.gpus, said.ahead):
            logs.setdefault(group, []).append(log)
    return StartCalibration(
        {
            group: _conformal(found)
            for group, found in logs.items()
            if len(found) >= (_FEWEST_OF_ALL if group == _ALL else _FEWEST)
        }
    )


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


def _groups(gpus: int, ahead: int) -> Iterator[str]:
    """The groups that a forecast belongs to, the nearest first."""
    size = sum(gpus > each for each in _SIZES)
    load = sum(ahead > each for each in _LOADS)
    yield f"size {size}, load {load}"
    yield f"load {load}"
    yield _ALL


def _conformal(logs: Sequence[float]) -> Ratios:
    """Ratios between which the next one lies with 80 %, where all are drawn alike."""
    ordered = sorted(logs)
    last = len(ordered) - 1
    low = max(math.floor((last + 2) * 0.1) - 1, 0)
    high = min(math.ceil((last + 2) * 0.9) - 1, last)
    return Ratios(
        *(math.exp(each) for each in (ordered[low], statistics.median(ordered), ordered[high]))
    )


_KEPT = TypeAdapter(StartCalibration)
