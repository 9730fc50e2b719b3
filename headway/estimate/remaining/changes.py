"""Where the speed of a run changed, and where it goes: Bayesian change points.

The run is cut into parts, fine at the newest end. Between two changes the
speed is level, or rises or falls in a straight line. Every place where the
last such segment may have begun is a hypothesis, with either shape; it counts
by how likely it makes what was seen (Adams and MacKay, "Bayesian online
changepoint detection", 2007; the segments are conjugate linear regressions).
So a steady run is averaged over all of it, a slow-down is followed from its
first few entries, and a drift is carried on as far as it stands out of the
noise.

Speeds are relative to the mean of the run so far, places are shares of the run.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from headway.estimate.remaining.history import Array

FINE = 4
"""A part is at most one in so many of the entries that are newer than it."""
FEW_ENTRIES = 48
"""Of so many entries each may be a part by itself; of more none is shorter than …"""
LEAST_ENTRIES = 4
"""… so many, for single ones scatter far."""
CHANGES = 0.5
"""Changes of speed expected in a run …"""
JUMP_SD = 0.4
"""… and how large they are."""
LINES = 0.2
"""How many segments are no level but a line …"""
SLOPE_SD = 0.1
"""… and how much that rises or falls over a whole run."""
LEAST_NOISE = 0.003
"""Noise of an entry, as a share of the mean; less is not believed."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Seconds per unit, as a mixture of normal distributions; arrays of one length."""

    weight: Array
    mean: Array
    sd: Array

    def quantiles(self, *shares: float) -> Array:
        """Below which value each of *shares* lies, within half a percent."""
        keep = self.weight > 1e-3 * self.weight.max()
        weight, mean, sd = self.weight[keep], self.mean[keep], self.sd[keep]
        order = np.argsort(mean)
        grid = np.unique(np.concatenate([mean[order] + step * sd[order] for step in _STEPS]))
        grid = grid[:: max(len(grid) // _MAX_GRID, 1)]
        below = weight @ ndtr((grid - mean[:, None]) / sd[:, None])
        return np.asarray(np.interp(shares, below / weight.sum(), grid))


_STEPS = np.linspace(-3.0, 3.0, 13)
_MAX_GRID = 150


def mean_ahead(unit_s: Array, units: Array, noise: float, total: float, left: float) -> Mixture:
    """The mean of what is left of a run if its speed goes on as it is.

    Args:
        unit_s: Seconds per unit of each interval, oldest first.
        units: Units of each.
        noise: Standard deviation of one, as a share of the mean.
        total: Units of the whole run.
        left: Units to come.
    """
    starts = _parts(len(unit_s))
    weight = np.add.reduceat(units, starts)
    mean_s = float(unit_s @ units) / float(weight.sum())
    level = np.add.reduceat(unit_s * units, starts) / (weight * mean_s)
    width = weight / total
    # A line says what it is in the middle of what is left: places count from there.
    place = np.cumsum(width) - width / 2.0 - width.sum() - left / total / 2.0
    precision = np.diff(np.append(starts, len(unit_s))) / max(noise, LEAST_NOISE) ** 2
    evidence, mean, variance = _segments(place, level - 1.0, precision)
    odds = _last_segments(evidence, np.minimum(CHANGES * width, 0.5))
    sd = np.sqrt(variance)
    return Mixture(odds.ravel(), mean_s * (1.0 + mean.ravel()), mean_s * sd.ravel())


def _parts(entries: int) -> npt.NDArray[np.intp]:
    """Where the parts begin, oldest first."""
    least = 1 if entries <= FEW_ENTRIES else LEAST_ENTRIES
    starts = [entries]
    while starts[-1] > 0:
        starts.append(max(starts[-1] - max(least, (entries - starts[-1]) // FINE), 0))
    return np.asarray(starts[:0:-1])


def _segments(x: Array, y: Array, precision: Array) -> tuple[Array, Array, Array]:
    """Fits a level and a line to every segment: from part i (row) to part j (column).

    Args:
        x: Where each part is.
        y: Its speed.
        precision: Inverse of its variance.

    Returns:
        Log of the evidence of each (shape, i, j); and of the segments that last
        until now the mean at x = 0 and its variance (shape, i).
    """

    def sums(values: Array) -> Array:
        upto = np.cumsum(values)
        return np.triu(upto - (upto - values)[:, None])

    w, wx, wxx = (sums(precision * value) for value in (np.ones_like(x), x, x * x))
    wy, wxy, wyy = (sums(precision * value) for value in (y, x * y, y * y))
    # What all segments share (how precise each part is) cancels.
    base = -0.5 * wyy
    jump, slope = JUMP_SD**-2, SLOPE_SD**-2
    h = w + jump
    level = base + 0.5 * wy * wy / h - 0.5 * np.log(h / jump)
    # The same for a line a + b x that is level, in the segment's middle, before it is seen.
    middle = wx / np.maximum(w, 1e-9)
    h12, h22 = wx + jump * middle, wxx + jump * middle * middle + slope
    det = h * h22 - h12 * h12
    a, b = (h22 * wy - h12 * wxy) / det, (h * wxy - h12 * wy) / det
    line = base + 0.5 * (a * wy + b * wxy) - 0.5 * np.log(det / (jump * slope))
    evidence = np.stack((level + math.log(1.0 - LINES), line + math.log(LINES)))
    mean, variance = np.stack((wy / h, a)), np.stack((1.0 / h, h22 / det))
    return evidence, mean[..., -1], variance[..., -1]


def _last_segments(evidence: Array, hazard: Array) -> Array:
    """How likely each segment that lasts until now is the last one (shape, i)."""
    entries = len(hazard)
    stays = np.cumsum(np.log1p(-hazard))
    begins = np.log(hazard)
    begins[0] = stays[0] = 0.0
    prior = begins[:, None] + stays - stays[:, None]
    either = np.logaddexp(*evidence) + prior
    so_far = np.zeros(entries)
    for last in range(entries - 1):
        so_far[last + 1] = np.logaddexp.reduce(either[: last + 1, last] + so_far[: last + 1])
    odds = evidence[..., -1] + prior[:, -1] + so_far
    odds = np.exp(odds - odds.max())
    return np.asarray(odds / odds.sum())
