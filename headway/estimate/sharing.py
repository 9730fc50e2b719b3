"""How much programs slow each other down that share a GPU, learnt from measured pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.estimate.duration.time_model import TimeModel
from headway.estimate.features import Configuration, from_trace
from headway.estimate.physics import Tables
from headway.model.trace import Trace

FEWEST_PAIRS = 5
"""With fewer measured pairs nothing is learnt of them."""


@dataclass(frozen=True)
class PairModel:
    """How many times as long a step takes beside another program, learnt from measured pairs."""

    model: TimeModel
    beside: frozenset[str]
    """Networks beside which something was measured."""

    @classmethod
    def fit(
        cls, traces: Sequence[Trace], teams: Iterable[str], tables: Tables, seed: int
    ) -> "PairModel | None":
        """Learn from the neighbours of *traces* that are of *teams*; None from too few."""
        rows = list(pairs_of(traces, teams, tables))
        if len(rows) < FEWEST_PAIRS:
            return None
        # As in `Estimators.fit`: they take a second that predicting never needs.
        from headway.estimate.frame import frame_of  # noqa: PLC0415
        from headway.estimate.regressors import SlowDown  # noqa: PLC0415

        frame = frame_of([known for known, _ in rows])
        model = SlowDown(random_state=seed).fit(frame, [times for _, times in rows]).model_
        return cls(model, frozenset(known.beside for known, _ in rows))

    def says(self, asked: Sequence[Configuration]) -> list[float | None]:
        """The medians, at least 1; None of programs and GPU types of which no pair was measured."""
        known = self.model.known
        rows = [
            at
            for at, c in enumerate(asked)
            if c.network in known["network"]
            and c.beside in self.beside
            and c.gpu_type in known["gpu_type"]
        ]
        found: list[float | None] = [None] * len(asked)
        said = self.model.quantiles([asked[at] for at in rows], (0.5,)) if rows else ()
        for at, (times,) in zip(rows, said, strict=True):
            found[at] = max(float(times), 1.0)
        return found


def pairs_of(
    traces: Sequence[Trace], teams: Iterable[str], tables: Tables
) -> Iterable[tuple[Configuration, float]]:
    """The pairs of *traces* whose other side is of *teams*, and how many times as long it took."""
    of = frozenset(teams)
    for trace in traces:
        for each in trace.beside:
            if each.team in of:
                own = from_trace(trace)
                yield (
                    Configuration(
                        network=own.network,
                        recipe=own.network,
                        batch_size=own.batch_size,
                        gpu_type=tables.gpu_name(own.gpu_type),
                        beside=each.network.lower(),
                        beside_batch_size=each.batch_size,
                    ),
                    each.times,
                )
