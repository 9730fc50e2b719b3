"""Pictures for reports, as PNG bytes: drawn without a display and without global state."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headway.estimate.choice import Option
from headway.estimate.evaluation.compare import calibration
from headway.estimate.evaluation.evaluate import Held
from headway.units import HOUR_S, format_duration

_LEVELS = tuple(i / 10 for i in range(1, 10))


def cumulative_error(held: Mapping[str, Held]) -> bytes:
    """Share of runs within each relative error, one line a model."""
    figure, axes = _figure("Relative error, %", "Share of runs within it")
    for name, each in held.items():
        error = np.sort(np.abs(each.forecast.median_s / each.measured_s - 1)) * 100
        axes.step(error, np.arange(1, len(error) + 1) / len(error), where="post", label=name)
    axes.set_xlim(0, 50)
    axes.set_ylim(0, 1)
    axes.legend()
    return _png(figure)


def calibration_plot(held: Mapping[str, Held]) -> bytes:
    """Promised against kept: the share of runs inside the interval of each level."""
    figure, axes = _figure("Promised share inside", "Share found inside")
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    for name, each in held.items():
        axes.plot(_LEVELS, calibration(each, _LEVELS), marker="o", label=name)
    axes.legend()
    return _png(figure)


def cost_against_time(found: Sequence[Option], currency: str = "") -> bytes:
    """Each option with a predicted runtime, its interval, and the Pareto set joined."""
    figure, axes = _figure("Hours until it is done", f"Cost {currency}".strip())
    shown = [o for o in found if o.done_s is not None]
    for option in shown:
        done_s, cost = option.done_s or 0.0, option.prediction.cost or 0.0
        low_s = option.prediction.runtime_low_s or 0.0
        high_s = option.prediction.runtime_high_s or 0.0
        runtime_s = option.prediction.runtime_s or 0.0
        axes.errorbar(
            done_s / HOUR_S,
            cost,
            xerr=[[(runtime_s - low_s) / HOUR_S], [(high_s - runtime_s) / HOUR_S]],
            marker="*" if option.chosen else "o",
            color="tab:blue" if option.pareto else "lightgrey",
        )
        on = f"{option.gpus} × {option.gpu_type}" if option.gpus else "CPU"
        axes.annotate(
            f"{on}, {format_duration(runtime_s)}",
            (done_s / HOUR_S, cost),
            (3, 4),
            textcoords="offset points",
            fontsize=7,
        )
    front = sorted((o.done_s or 0.0, o.prediction.cost or 0.0) for o in shown if o.pareto)
    axes.plot([s / HOUR_S for s, _ in front], [c for _, c in front], color="tab:blue", linewidth=1)
    dearest = max((o.prediction.cost or 0.0 for o in shown), default=0.0)
    # A site without prices has only zeros: no room for costs below them.
    axes.set_ylim(-0.02 * (dearest or 1.0), 1.1 * (dearest or 1.0))
    return _png(figure)


def _figure(across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
