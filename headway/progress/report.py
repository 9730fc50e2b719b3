"""The helper a training program may call: prints one line that headway reads.

No dependency, not even inside headway: this file may be copied into any
container. `docs/progress.md` defines the line.
"""

import json
import math
import sys
from collections.abc import Mapping
from typing import TextIO


def report(
    iteration: int | None = None,
    *,
    epoch: float | None = None,
    total: int | None = None,
    metrics: Mapping[str, float] | None = None,
    file: TextIO | None = None,
) -> None:
    """Print how far training is, as one line of headway's own protocol.

    Args:
        iteration: Iterations done in all, counted from 1.
        epoch: Epochs done in all; 1.5 is half way through the second.
        total: Iterations there will be in all; epochs when no iteration is given.
        metrics: Name → number. NaN is told as such, infinities are left out.
        file: Where to print; standard output when left out.

    Only rank 0 needs to call it; calls of other ranks are not counted again.
    Never raises for a value that is no number: the line just leaves it out.
    """
    said: dict[str, object] = {}
    for name, value in (("iteration", iteration), ("epoch", epoch), ("total", total)):
        number = finite_number(value)
        if number is not None:
            said[name] = number if name == "epoch" else int(number)
    numbers = {str(key): _number(value) for key, value in (metrics or {}).items()}
    kept: dict[str, object] = {}
    for key, number in numbers.items():
        if number is not None and not math.isinf(number):
            kept[key] = "nan" if math.isnan(number) else number  # JSON has no NaN
    if kept:
        said["metrics"] = kept
    # One write, so that lines of several threads do not run into each other.
    out = file or sys.stdout
    out.write(json.dumps({"headway": said}) + "\n")
    out.flush()


def finite_number(value: object) -> float | None:
    """*value* as a finite number (also a NumPy scalar or a one-element tensor), or None."""
    number = _number(value)
    return number if number is not None and math.isfinite(number) else None


def is_nan(value: object) -> bool:
    """Whether *value* is, or reads as, NaN."""
    number = _number(value)
    return number is not None and math.isnan(number)


def _number(value: object) -> float | None:
    if value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
