"""What the rest of headway asks: fit on traces, predict one run.

Importing this loads numpy and scipy, half a second; `prior` and `features` load neither.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, InstanceOf

from headway.estimate.duration.time_model import TimeModel
from headway.estimate.features import Configuration, Unit, from_trace
from headway.estimate.learnable import learnable
from headway.estimate.memory import FEWEST_PEAKS, MemoryModel
from headway.estimate.physics import Tables, shipped
from headway.estimate.sharing import PairModel
from headway.estimate.winners import Champions, Learn, Winners
from headway.model.run import Prediction
from headway.model.trace import Trace

if TYPE_CHECKING:
    from headway.estimate.regressors import HostMemory

FEWEST = 5
"""With fewer traces of a unit no time is learnt."""


@dataclass(frozen=True)
class Estimators:
    """One version of everything that is learnt. Without traces it knows nothing, and says so."""

    version: int = 0
    fitted_at: datetime | None = None
    seen: frozenset[int] = frozenset()
    """Digests of those traces, so that it is never judged on what it was fitted on."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Traces by recipe."""
    times: Mapping[Unit, TimeModel] = field(default_factory=dict)
    host: MemoryModel = field(default_factory=MemoryModel)
    gpu: MemoryModel = field(default_factory=MemoryModel)
    winners: Mapping[Unit, Winners] = field(default_factory=dict)
    """Others that predict some kinds of questions better."""
    pairs: PairModel | None = None
    """How much programs slow each other down on a GPU; None where too few pairs were measured."""
    champions: Champions | None = None
    """Who was to predict what; None before the first tournament."""
    teams: Mapping[str, "Estimators"] = field(default_factory=dict)
    """By team what its own runs teach, with what all may know; any other knows the latter alone."""
    tables: Annotated[InstanceOf[Tables], Field(exclude=True)] = field(default_factory=shipped)
    """Facts of GPUs and networks; not kept with a version."""

    @classmethod
    def fit(
        cls,
        traces: Sequence[Trace],
        *,
        fitted_at: datetime,
        version: int = 1,
        seed: int = 0,
        tables: Tables | None = None,
        champions: Champions | None = None,
        learn: Learn | None = None,
    ) -> "Estimators":
        """Learn from *traces*; the same traces and seed give the same estimators.

        Args:
            traces: Finished runs and imported measurements, in any order.
            fitted_at: Kept with the result, for people.
            version: Number of the result; one more than the newest kept.
            seed: Of every random choice.
            tables: Facts of GPUs and networks; the shipped ones when None.
            champions: Who is to predict what, besides headway's own process.
            learn: How a champion is fitted that others have brought.
        """
        tables = tables or shipped()
        traces = sorted(traces, key=_line)
        # By team, since what is fitted to few runs tells of each of them.
        fits = {
            team: replace(
                cls._of(
                    [t for t in traces if t.team in {"", team}],
                    seed,
                    tables,
                    champions,
                    learn,
                    team=team,
                ),
                version=version,
                fitted_at=fitted_at,
            )
            for team in sorted({"", *(trace.team for trace in traces)})
        }
        return replace(
            fits.pop(""),
            seen=frozenset(map(digest, traces)),
            teams=fits,
        )

    @classmethod
    def _of(
        cls,
        traces: Sequence[Trace],
        seed: int,
        tables: Tables,
        champions: Champions | None,
        learn: Learn | None,
        *,
        team: str,
    ) -> "Estimators":
        """What *traces* teach *team*, which may know them all."""
        # pandas and scikit-learn take a second that predicting never needs.
        from headway.estimate.candidates import fitted  # noqa: PLC0415
        from headway.estimate.frame import frame_of  # noqa: PLC0415
        from headway.estimate.regressors import GpuMemory, HostMemory, Runtime  # noqa: PLC0415

        known = [tables.complete(from_trace(t)) for t in traces]
        times: dict[Unit, TimeModel] = {}
        winners: dict[Unit, Winners] = {}
        for unit in Unit:
            rows = learnable(traces, known, unit)
            if len(rows) >= FEWEST:
                seen = [known[at] for at in rows]
                frame, took_s = frame_of(seen), np.array(list(rows.values()))
                times[unit] = Runtime(unit=unit, random_state=seed).fit(frame, took_s).model_
                if champions is not None and champions.unit is unit:
                    asked = frame_of([replace(c, iterations=None) for c in seen])
                    others = fitted(champions.names.values(), asked, took_s, learn)
                    if others:
                        winners[unit] = Winners.of(champions.names, seen, others)
        counts: dict[str, int] = {}
        for c in known:
            counts[c.recipe] = counts.get(c.recipe, 0) + 1
        return cls(
            counts=counts,
            times=times,
            winners=winners,
            champions=champions,
            host=_memory(HostMemory(), traces, known, "host_peak_bytes"),
            gpu=_memory(GpuMemory(), traces, known, "gpu_peak_bytes"),
            pairs=PairModel.fit(traces, {"", team}, tables, seed),
            tables=tables,
        )

    def of(self, team: str) -> "Estimators":
        """What *team* may know."""
        return self.teams.get(team, self)

    @property
    def has_times(self) -> bool:
        """Whether it can tell the time of any run."""
        return any(each.times for each in (self, *self.teams.values()))

    @property
    def traces(self) -> int:
        """Number of traces it was fitted on."""
        return sum(self.counts.values())

    def like(self, configuration: Configuration) -> int:
        """Number of traces of the same recipe."""
        return self.counts.get(configuration.recipe, 0)

    def predict(
        self, configurations: Sequence[Configuration], unit: Unit = Unit.RUN
    ) -> list[Prediction]:
        """What a run of each of *configurations* would take; None in it where nothing is known.

        Or only an epoch or an iteration of it, where that is the *unit*. Many at once cost little
        more than one.
        """
        known = [self.tables.complete(c) for c in configurations]
        found = [Prediction()] * len(known)
        for team in {c.team for c in known}:
            rows = [row for row, c in enumerate(known) if c.team == team]
            said = self.of(team).predict_alike([known[row] for row in rows], unit)
            for row, each in zip(rows, said, strict=True):
                found[row] = each
        return found

    def predict_alike(
        self, known: Sequence[Configuration], unit: Unit = Unit.RUN
    ) -> list[Prediction]:
        """What it predicts by itself, whoever's the *known* are, which are complete."""
        runtimes = self._runtimes(known, unit)
        found = []
        for c, seconds in zip(known, runtimes, strict=True):
            host, gpu = self.host.upper_bytes(c), self.gpu.upper_bytes(c)
            nothing = seconds is None and host is None and gpu is None
            median_s, low_s, high_s = seconds or (None, None, None)
            found.append(
                Prediction(
                    runtime_s=median_s,
                    runtime_low_s=low_s,
                    runtime_high_s=high_s,
                    host_peak_bytes=host,
                    gpu_peak_bytes=gpu if c.gpu_type != "cpu" else None,
                    basis="prior: no trace is like it"
                    if nothing
                    else f"estimators v{self.version}: {self.like(c)} of {self.traces} traces "
                    f"are of {c.recipe or 'no named recipe'}",
                )
            )
        return found

    def _runtimes(
        self, known: Sequence[Configuration], of: Unit
    ) -> list[tuple[float, float, float] | None]:
        """Median and interval of each run, or of an epoch or iteration of it, in seconds.

        Whole runs that were measured speak first, but only of their own
        recipe; else epochs and then iterations, times their number.
        """
        found: list[tuple[float, float, float] | None] = [None] * len(known)
        for unit in reversed(Unit) if of is Unit.RUN else (of,):
            model = self.times.get(unit)
            factors = [1.0 if unit is of else _factor(c, unit) for c in known]
            rows = [
                i
                for i, c in enumerate(known)
                if found[i] is None
                and model is not None
                and factors[i]
                and (unit is not Unit.RUN or model.has(c))
            ]
            if model is None or not rows:
                continue
            asked = [known[i] for i in rows]
            said = model.quantiles(asked)
            if unit in self.winners:
                said = self.winners[unit].said(asked, said)
            for i, span in zip(rows, said, strict=True):
                low_s, median_s, high_s = (float(each) * (factors[i] or 1.0) for each in span)
                found[i] = (median_s, low_s, high_s)
        return found


def _factor(configuration: Configuration, unit: Unit) -> float | None:
    """How many of *unit* the run has; None when that is not known."""
    return configuration.epochs if unit is Unit.EPOCH else configuration.iterations_in_all()


def _memory(
    model: "HostMemory", traces: Sequence[Trace], known: Sequence[Configuration], column: str
) -> MemoryModel:
    """What *traces* say of the peak in *column*. A run that failed early says nothing."""
    told = [
        (c, peak, t.exit == "oom")
        for t, c in zip(traces, known, strict=True)
        if (peak := getattr(t, column)) and t.exit in {"ok", "oom"}
    ]
    if len(told) < FEWEST_PEAKS:
        return MemoryModel()
    from headway.estimate.frame import frame_of  # noqa: PLC0415 - as above

    rows, peaks, bounds = zip(*told, strict=True)
    return model.fit(frame_of(rows), peaks, lower_bound=bounds).model_


def digest(trace: Trace) -> int:
    """64 bits that tell *trace* from others."""
    return int.from_bytes(hashlib.sha256(_line(trace).encode()).digest()[:8], "big")


def _line(trace: Trace) -> str:
    """All of *trace* but whose it is, which tells two of them from each other no better."""
    fields = {name: v for name, v in dataclasses.asdict(trace).items() if name != "owner"}
    if not trace.beside:  # as before these were kept
        del fields["beside"]
    return json.dumps(fields, default=str, sort_keys=True)
