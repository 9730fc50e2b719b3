"""The options of a job as a chart.

Only numbers go in and PNG bytes come out. Importing this costs a second for
matplotlib: import it where a chart is drawn. Where matplotlib is not installed,
to import this raises `NotInstalled`.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import NotInstalled
from headway.units import HOUR_S, format_duration

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise NotInstalled("pictures", "matplotlib", "plots") from error


def draw_options(found: Sequence[Mapping[str, Any]]) -> bytes:
    """PNG: each option with a predicted runtime, its interval, and the Pareto set joined.

    Args:
        found: Options as `choice.document` writes them.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # drawn without a screen
    axes = figure.add_subplot()
    axes.set_xlabel("Hours until it is done")
    axes.set_ylabel("Cost")
    axes.grid(alpha=0.3)
    shown = [each for each in found if each["runtime_s"] is not None]
    for option in shown:
        runtime_s = option["runtime_s"]
        done_h, cost = _done_h(option), option["cost"] or 0.0
        low_s, high_s = option["runtime_low_s"] or 0.0, option["runtime_high_s"] or 0.0
        axes.errorbar(
            done_h,
            cost,
            xerr=[[(runtime_s - low_s) / HOUR_S], [(high_s - runtime_s) / HOUR_S]],
            marker="*" if option["chosen"] else "o",
            color="tab:blue" if option["pareto"] else "lightgrey",
        )
        on = f"{option['gpus']} × {option['gpu_type']}" if option["gpus"] else "CPU"
        axes.annotate(
            f"{on}, {format_duration(runtime_s)}",
            (done_h, cost),
            (3, 4),
            textcoords="offset points",
            fontsize=7,
        )
    front = sorted((_done_h(each), each["cost"] or 0.0) for each in shown if each["pareto"])
    axes.plot([h for h, _ in front], [c for _, c in front], color="tab:blue", linewidth=1)
    dearest = max((each["cost"] or 0.0 for each in shown), default=0.0)
    # A site without prices has only zeros: no room for costs below them.
    axes.set_ylim(-0.02 * (dearest or 1.0), 1.1 * (dearest or 1.0))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _done_h(option: Mapping[str, Any]) -> float:
    done_s: float = option["runtime_s"] + (option["wait_s"] or 0.0)
    return done_s / HOUR_S
