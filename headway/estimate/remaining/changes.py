"""Where the speed of a run changed, and where it goes: Bayesian change points.

The run is cut into parts, fine at the newest end. Between two changes the
speed is level, or rises or falls in a straight line. Every place where the
last such segment may have begun is a reading of the run, with either shape and
with noise that is as it looks or greater; how likely each makes what was seen
is how much it counts (Adams and MacKay, "Bayesian online changepoint
detection", 2007; the segments are conjugate linear regressions). So a steady
run is averaged over all of it, a slow-down is followed from its first few
entries, and a drift is carried on as far as it stands out of the noise.

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
NOISES = np.array([1.0, 1.8, 3.3])[:, None, None]
"""What the noise may be, times what it looks: it may remember, or have far outliers."""
NOISE_ODDS = np.array([0.4, 0.4, 0.2])[:, None, None]
LEAST_NOISE = 0.003
AHEAD_CHANGES, AHEAD_RUNS = 0.6, 1.0
"""Changes still to come are as frequent as those so far, and so many in so many runs before."""
AHEAD_SD = 0.15
"""How far the first change moves the mean of what is left."""


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


def mean_ahead(
    unit_s: Array, units: Array, noise: float, total: float, left: float
) -> tuple[Mixture, Mixture]:
    """The mean of what is left of a run: if it goes on as it is, and with what may come.

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
    runs = AHEAD_RUNS + float(width.sum())
    before = np.cumsum(level * weight) / np.cumsum(weight) - 1.0
    changed = 1.0 - (runs / (runs + left / total)) ** (AHEAD_CHANGES + (np.arange(len(level)) > 0))
    back, back_variance = _after_a_change(mean, variance, before)

    def mixture(*parts: tuple[Array, Array, Array]) -> Mixture:
        shares, means, variances = (
            np.concatenate(of, axis=None) for of in zip(*parts, strict=True)
        )
        return Mixture(shares, mean_s * (1.0 + means), mean_s * np.sqrt(variances))

    as_it_is = mixture((odds, mean, variance))
    return as_it_is, mixture(
        (odds * (1.0 - changed), mean, variance), (odds * changed, back, back_variance)
    )


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
        Log of the evidence of each (shape, noise, i, j); and of the segments
        that last until now the mean at x = 0 and its variance (shape, noise, i).
    """

    def sums(values: Array) -> Array:
        upto = np.cumsum(values)
        return np.triu(upto - (upto - values)[:, None])

    trust = 1.0 / NOISES**2
    w, wx, wxx = (trust * sums(precision * value) for value in (np.ones_like(x), x, x * x))
    wy, wxy, wyy = (trust * sums(precision * value) for value in (y, x * y, y * y))
    count = np.arange(len(x)) - np.arange(len(x))[:, None] + 1.0
    # What all segments share (how precise each part is) cancels; the noise does not.
    base = -0.5 * wyy - count * np.log(NOISES)
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
    """How likely each segment that lasts until now is the last one (shape, noise, i)."""
    entries = len(hazard)
    stays = np.cumsum(np.log1p(-hazard))
    begins = np.log(hazard)
    begins[0] = stays[0] = 0.0
    prior = begins[:, None] + stays - stays[:, None]
    either = np.logaddexp(*evidence) + prior
    so_far = np.zeros((len(either), entries))
    for last in range(entries):
        ways = either[:, : last + 1, last]
        if last:
            ways = ways + so_far[:, : last + 1]
        if last + 1 < entries:
            top = ways.max()
            so_far[:, last + 1] = top + np.log(np.exp(ways - top).sum(axis=1) + 1e-300)
    odds = evidence[..., -1] + prior[:, -1] + so_far + np.log(NOISE_ODDS[..., 0])
    odds = np.exp(odds - odds.max())
    return np.asarray(odds / odds.sum())


def _after_a_change(mean: Array, variance: Array, before: Array) -> tuple[Array, Array]:
    """The mean of what is left and its variance if one more change comes.

    A run that was at another level goes back there at some time, as when a
    neighbour leaves; one that was not may go anywhere.
    """
    old = mean.copy()
    old[..., 1:] = before[:-1]
    # It comes at any time, so that the mean ends anywhere between the two levels.
    between = (old - mean) ** 2 / 12.0
    between[..., 0] = AHEAD_SD**2
    return (old + mean) / 2.0, variance + between
