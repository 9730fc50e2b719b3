"""The options of a job, and how quantiles held, as charts.

Only numbers go in and PNG bytes come out. Importing this costs a second for
matplotlib: import it where a chart is drawn. Where matplotlib is not installed,
to import this raises `NotInstalled`.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import NotInstalled
from headway.units import COST, HOUR_S, format_duration

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise NotInstalled("pictures", "matplotlib", "plots") from error


def draw_options(found: Sequence[Mapping[str, Any]]) -> bytes:
    """PNG: cost over time of each option, its interval, the Pareto set joined; and the speed-ups.

    Args:
        found: Options as `choice.document` writes them.
    """
    faster = [each for each in found if each["speed_up"] is not None]
    figure = Figure(figsize=(11.0 if faster else 6.4, 4.2), layout="constrained")
    axes = _axes(figure, "Hours until it is done", COST.capitalize(), (1, 2 if faster else 1, 1))
    if faster:
        _draw_speed_ups(_axes(figure, "GPUs", "Times as fast as one", (1, 2, 2)), faster)
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
    return _png(figure)


def draw_calibration(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """PNG: of each kind of question the share of runs that stayed below what was promised.

    Args:
        rows: As `Tournament.calibration` has them.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = _axes(figure, "Promised share of runs below, %", "Share found below, %", (1, 1, 1))
    axes.plot([0, 100], [0, 100], color="grey", linewidth=1)
    for row in rows:
        told = {float(name[:-1]): 100 * share for name, share in row.items() if name[-1] == "%"}
        label = f"{row['kind']} ({row['runs']})"
        axes.plot(list(told), list(told.values()), marker="o", label=label)
    axes.legend(fontsize=7)
    return _png(figure)


def _draw_speed_ups(axes: Any, faster: Sequence[Mapping[str, Any]]) -> None:
    """Of each GPU type, and of each number of nodes, beside the line that nothing beats."""
    most = max(each["gpus"] for each in faster)
    axes.plot([0, most], [0, most], color="grey", linewidth=1)
    for name in sorted({each["gpu_type"] for each in faster}):
        own = sorted((e["gpus"], e["speed_up"]) for e in faster if e["gpu_type"] == name)
        axes.plot(*zip(*own, strict=True), marker="o", label=name)
    axes.legend(fontsize=7)


def _axes(figure: Figure, across: str, up: str, place: tuple[int, int, int]) -> Any:
    FigureCanvasAgg(figure)  # drawn without a screen
    axes = figure.add_subplot(*place)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    return axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _done_h(option: Mapping[str, Any]) -> float:
    done_s: float = option["runtime_s"] + (option["wait_s"] or 0.0)
    return done_s / HOUR_S
