"""Charts of held-out errors and of calibration, as PNG bytes."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import norm

from headway.estimate.duration.time_model import COVERAGE
from headway.estimate.encode import Floats
from headway.estimate.evaluation.evaluate import HeldOut

_LEVELS = tuple(i / 10 for i in range(1, 10))


def calibration(held: HeldOut, levels: Sequence[float]) -> Floats:
    """Share of measured times inside the interval of each of *levels*, as the 80 % one scales."""
    low_s, median_s, high_s = held.said_s.T
    off = np.abs(np.log(held.measured_s / median_s)) / (np.log(high_s / low_s) / 2)
    normal = norm.ppf(0.5 + np.array(levels) / 2) / norm.ppf(0.5 + COVERAGE / 2)
    return np.array([(off <= reach).mean() for reach in normal])


def cumulative_error(held: Mapping[str, HeldOut]) -> bytes:
    """Share of runs within each relative error, one line a model."""
    figure, axes = _figure("Relative error, %", "Share of runs within it")
    for name, each in held.items():
        error = np.sort(np.abs(each.said_s[:, 1] / each.measured_s - 1)) * 100
        axes.step(error, np.arange(1, len(error) + 1) / len(error), where="post", label=name)
    axes.set_xlim(0, 50)
    axes.set_ylim(0, 1)
    return _png(figure, axes)


def calibration_chart(held: Mapping[str, HeldOut]) -> bytes:
    """Promised against kept: the share of runs inside the interval of each level."""
    figure, axes = _figure("Promised share inside", "Share found inside")
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    for name, each in held.items():
        axes.plot(_LEVELS, calibration(each, _LEVELS), marker="o", label=name)
    return _png(figure, axes)


def _figure(across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    return figure, axes


def _png(figure: Figure, axes: Axes) -> bytes:
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
