"""What a site would have said of each job at its submission: from the jobs that had ended by then.

The very rules of a site's forecast, from a cold start: runs of the same recipe and size, else the
nearest group of the newest ended runs, else the prior by the user's limit. A trace has no
features of networks and data sets, so the nightly refit of the estimators has no part in it.
"""

import math
from collections import defaultdict, deque
from typing import NamedTuple

from headway.estimate.features import Configuration
from headway.estimate.prior import UTILISATION_PRIOR
from headway.estimate.recall import RECENT, said_of
from headway.estimate.usual import LOOKED_AT, Kind, Lasted, Usual, instead_of_prior
from headway.model.run import Prediction
from headway.model.trace import UTILISATION, Trace
from headway.replay.trace_jobs import Estimates, TraceJob

_REFIT = 50
"""Groups are learnt anew when a fiftieth of the ended runs that are looked at is new."""
_GPU = "replayed"
"""All GPUs of a replay are of one type."""


class Told(NamedTuple):
    """What the policy is told of a job."""

    median_s: float
    high_s: float
    gpu_util_frac: float


class History:
    """The runs of a replay that have ended, and what follows from them."""

    def __init__(self, estimates: Estimates) -> None:
        """Nothing has ended yet; *estimates* says what the policy is told of runtimes."""
        self._estimates = estimates
        self._of_recipe: defaultdict[str, deque[Trace]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._ended: deque[Lasted] = deque(maxlen=LOOKED_AT)
        self._usual = Usual(())
        self._new = 0

    def ended(self, row: TraceJob, runtime_s: float) -> None:
        """*row* has ended after *runtime_s*, slowed by those it shared its GPU with."""
        self._ended.append(Lasted(kind_of_row(row), runtime_s))
        self._new += 1
        if row.recipe:
            self._of_recipe[row.recipe].appendleft(
                Trace(
                    network="",
                    gpu_type=_GPU,
                    gpus=row.gpus,
                    batch_size=None,
                    runtime_s=runtime_s,
                    recipe=row.recipe,
                    metrics={UTILISATION: row.gpu_util_frac},
                )
            )

    def told(self, row: TraceJob) -> Told:
        """What the policy is told of *row*, which is submitted now."""
        if self._estimates is Estimates.PERFECT:
            return Told(max(row.duration_s, 1.0), max(row.duration_s, 1.0), row.gpu_util_frac)
        said = self._said(row)
        median_s, high_s = {
            Estimates.USER: (row.limit_s, row.limit_s),
            Estimates.GIVEN: row.predicted_s,
            Estimates.LEARNED: (said.runtime_s or 1.0, said.runtime_high_s or 1.0),
        }[self._estimates]
        busy = said.gpu_utilisation_frac
        busy = UTILISATION_PRIOR if busy is None else busy
        return Told(max(median_s, 1.0), max(high_s, median_s, 1.0), busy)

    def _said(self, row: TraceJob) -> Prediction:
        """The prediction of a site's `Forecaster`, by the same functions."""
        recent = self._of_recipe[row.recipe] if row.recipe else ()
        asked = Configuration(gpu_type=_GPU, gpus=row.gpus, recipe=row.recipe)
        limit_s = row.limit_s if 0.0 < row.limit_s < math.inf else None
        said = said_of(asked, Prediction(), list(recent), limit_s=limit_s)
        if said.learnt is not None:
            return said
        if self._new > len(self._ended) // _REFIT:
            self._usual, self._new = Usual(self._ended), 0
        return instead_of_prior(said, self._usual.of(kind_of_row(row)))


def kind_of_row(row: TraceJob) -> Kind:
    """What *row* is told apart by."""
    limit_s = row.limit_s or math.inf
    return Kind(row.recipe, row.user, image="", gpus=row.gpus, limit_s=limit_s)
