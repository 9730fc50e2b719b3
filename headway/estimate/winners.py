"""Others than the product's own process, where they won: kept without code, asked by kind.

A model is kept by skops: numbers and names of types. A type that is not named here is refused, so
what is read builds none but these. Cheap to import; the libraries come with the first such model.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Base64Bytes

from headway.errors import EstimatorDamaged
from headway.estimate.encode import Floats
from headway.estimate.features import Configuration, Unit
from headway.estimate.kinds import Kind, kind_of, seen_of

if TYPE_CHECKING:
    from headway.estimate.regressors import Estimator

log = logging.getLogger(__name__)

Learn = Callable[[str, Any, Floats], bytes | None]
"""What the estimator of a name has learnt from rows and seconds, as `kept`; None: it failed."""
GROUP = "headway.estimators"
"""Entry points under which others bring theirs; each names a function that makes an estimator."""
LARGEST_BYTES = 64 * 2**20
_LIBRARIES = frozenset({"headway", "numpy", "pandas", "scipy", "sklearn", "builtins", "os"})
_TRUSTED = (
    *("headway.estimate.regressors.Estimator", "numpy.dtype", "sklearn.utils._bunch.Bunch"),
    *(
        f"headway.estimate.candidates.{name}"
        for name in ("Encoded", "OnLogs", "Physics", "categories_of", "quantities_of")
    ),
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    *(
        f"sklearn.gaussian_process.kernels.{name}"
        for name in ("ConstantKernel", "Matern", "Product", "Sum", "WhiteKernel")
    ),
)
"""Types that skops does not trust by itself."""


@dataclass(frozen=True)
class Champions:
    """Who predicts the times of one unit, by what is new in a run."""

    unit: Unit
    names: Mapping[Kind, str]


@dataclass(frozen=True)
class Winners:
    """Fitted champions of some kinds of questions; the product's own process answers all others."""

    names: Mapping[Kind, str]
    seen: frozenset[int]
    """By which the kind of a question is told, see `kinds`."""
    models: Mapping[str, Base64Bytes]

    @classmethod
    def of(
        cls, names: Mapping[Kind, str], known: Sequence[Configuration], fitted: Mapping[str, bytes]
    ) -> "Winners":
        """Those of *fitted* that are among *names*; they have learnt from *known*."""
        own = {kind: name for kind, name in names.items() if name in fitted}
        return cls(own, seen_of(known), fitted)

    def said(self, known: Sequence[Configuration], usual: Floats) -> Floats:
        """Low, median and high in seconds of each run, shape (n, 3).

        Args:
            known: What is asked, with what is known of its names.
            usual: What the product's own process says, which stands where no other has won, or
                where that one fails.
        """
        found = usual.copy()
        who = [self.names.get(kind_of(c, self.seen)) for c in known]
        for name in set(who) - {None}:
            rows = [at for at, each in enumerate(who) if each == name]
            try:
                found[rows] = self._asked(str(name), [known[at] for at in rows])
            except (Exception, SystemExit):  # whatever another's code does, admission goes on
                log.exception("estimator %s failed; what headway's own says is used", name)
        return found

    def _asked(self, name: str, known: Sequence[Configuration]) -> Floats:
        from headway.estimate.frame import frame_of  # noqa: PLC0415 - pandas: 0.4 s

        asked = frame_of([replace(c, iterations=None) for c in known])
        said = opened(self.models[name]).predict_quantiles(asked)
        said = np.asarray(said, dtype=np.float64)
        if said.shape != (len(known), 3) or not (np.isfinite(said).all() and (said > 0).all()):
            raise ValueError(f"it gives no three times above zero for each of {len(known)} rows")
        return np.sort(said, axis=1)


def kept(estimator: Any) -> bytes:
    """*estimator* as bytes that `opened` reads again.

    Raises:
        EstimatorDamaged: It holds a type that is not trusted, or is too large.
    """
    from skops import io  # noqa: PLC0415 - with scikit-learn: a second

    data: bytes = io.dumps(estimator)
    if len(data) > LARGEST_BYTES:
        raise EstimatorDamaged(type(estimator).__name__, f"{len(data)} bytes are too many")
    opened(data)
    return data


@lru_cache(maxsize=8)
def opened(data: bytes) -> "Estimator":
    """The estimator in *data*.

    Raises:
        EstimatorDamaged: It holds a type that is not trusted.
    """
    from skops import io  # noqa: PLC0415 - as above

    brought = tuple(f"{module}." for module in _brought_modules())
    unknown = io.get_untrusted_types(data=data)
    trusted = [t for t in unknown if t in _TRUSTED or t.startswith(brought)]
    if refused := sorted(set(unknown) - set(trusted)):
        raise EstimatorDamaged("a model", f"it holds {', '.join(refused)}, which is not trusted")
    found: Estimator = io.loads(data, trusted=trusted)
    return found


def _brought_modules() -> set[str]:
    """Modules whose estimators an operator has installed; of no library that others come from."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads every package's folder

    found = {point.module for point in entry_points(group=GROUP)}
    return {each for each in found if each.partition(".")[0] not in _LIBRARIES}
