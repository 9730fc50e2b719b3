"""The chart of the options of a job, cost against time. Loads matplotlib, which takes a second."""

import io
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headway.estimate.choice import Option
from headway.units import HOUR_S, format_duration


def cost_against_time(found: Sequence[Option]) -> bytes:
    """PNG: each option with a predicted runtime, its interval, and the Pareto set joined."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel("Hours until it is done")
    axes.set_ylabel("Cost")
    axes.grid(alpha=0.3)
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
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
