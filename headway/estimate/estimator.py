"""What the rest of headway asks: fit on traces, predict one run.

Importing this loads numpy and scipy, half a second; `prior` and `features` load neither.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from headway.estimate.features import Configuration, Unit, from_trace, measured_times
from headway.estimate.runtime import TimeModel
from headway.model.run import Prediction
from headway.model.trace import Trace
from headway.units import HOUR_S

FEWEST = 5
"""With fewer traces of a unit nothing is learnt."""


@dataclass(frozen=True)
class Estimators:
    """One version of everything that is learnt. Without traces it knows nothing, and says so."""

    version: int = 0
    fitted_at: datetime | None = None
    fingerprint: str = ""
    """sha256 of the traces it was fitted on."""
    traces: int = 0
    times: Mapping[Unit, TimeModel] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Its errors, as measured when it was compared with the one before."""

    @classmethod
    def fit(
        cls, traces: Sequence[Trace], *, fitted_at: datetime, version: int = 1, seed: int = 0
    ) -> "Estimators":
        """Learn from *traces*; the same traces and seed give the same estimators."""
        times: dict[Unit, TimeModel] = {}
        for unit in Unit:
            known = [(from_trace(t), measured_times(t).get(unit)) for t in traces]
            pairs = [(c, s) for c, s in known if s is not None]
            if len(pairs) >= FEWEST:
                seconds = np.array([s for _, s in pairs])
                times[unit] = TimeModel.fit([c for c, _ in pairs], seconds, seed)
        return cls(version, fitted_at, fingerprint(traces), len(traces), times)

    def state(self) -> dict[str, Any]:
        """Everything as plain data and arrays, for `store`."""
        return {
            "version": self.version,
            "fitted_at": self.fitted_at.isoformat() if self.fitted_at else None,
            "fingerprint": self.fingerprint,
            "traces": self.traces,
            "times": {unit.value: model.state() for unit, model in self.times.items()},
            "figures": dict(self.figures),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Estimators":
        """The estimators that gave *state*."""
        return cls(
            version=state["version"],
            fitted_at=datetime.fromisoformat(state["fitted_at"]) if state["fitted_at"] else None,
            fingerprint=state["fingerprint"],
            traces=state["traces"],
            times={Unit(u): TimeModel.from_state(s) for u, s in state["times"].items()},
            figures=state["figures"],
        )

    def predict(self, configuration: Configuration, *, price_per_hour: float = 0.0) -> Prediction:
        """What a run of *configuration* would take; None in it where nothing is known.

        Args:
            configuration: The run, as `features.from_job` gives it.
            price_per_hour: Price of all that the run would hold, for an hour.
        """
        for unit, factor in (
            (Unit.RUN, 1.0),
            (Unit.EPOCH, configuration.epochs),
            (Unit.ITERATION, configuration.iterations_in_all()),
        ):
            if unit in self.times and factor:
                forecast = self.times[unit].forecast([configuration])
                median_s, low_s, high_s = (
                    float(each[0]) * factor
                    for each in (forecast.median_s, forecast.low_s, forecast.high_s)
                )
                return Prediction(
                    runtime_s=median_s,
                    runtime_low_s=low_s,
                    runtime_high_s=high_s,
                    cost=median_s / HOUR_S * price_per_hour,
                    basis=f"estimators v{self.version}: {self.traces} traces",
                )
        return Prediction()


def fingerprint(traces: Sequence[Trace]) -> str:
    """sha256 of *traces*, whatever their order."""
    lines = sorted(json.dumps(dataclasses.asdict(t), default=str, sort_keys=True) for t in traces)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
