"""Charts as PNG bytes: one run (metrics, iteration times, host memory), and the options of a job.

Only numbers go in and PNG bytes come out. Importing this costs a second for
matplotlib: import it where a chart is drawn, and nowhere on the way to a start. Where
matplotlib is not installed, to import this raises `NotInstalled`.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headway.errors import NotInstalled, shown
from headway.estimate.remaining.history import Array
from headway.model.progress import ProgressPoint
from headway.units import GIB, HOUR_S, MIB, MINUTE_S, format_duration

try:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise NotInstalled("pictures", "matplotlib", "plots") from error

_MAX_POINTS = 800
"""More than there are pixels across would only make the file large."""
_MAX_METRICS = 3
_LOG_RATIO = 20.0
"""Times that differ by more than this are drawn on a log scale."""


def draw_run(
    points: Sequence[ProgressPoint],
    memory: Sequence[tuple[float, int]],
    limit_bytes: int | None,
) -> bytes:
    """Metrics, iteration time and host memory over the time since the start.

    Args:
        points: What the log said, oldest first.
        memory: Seconds since the start, and bytes in use then.
        limit_bytes: The run's limit of host memory; None when not known.

    Returns:
        A PNG of at most a few dozen kB. What is not known is said in its
        place; the picture never fails for lack of data.
    """
    t_s, done, unit = rising(points)
    last_s = max([point.t_s for point in points[-1:]] + [at for at, _ in memory[-1:]], default=1.0)
    scale_s, name = _unit_of_time(last_s)
    figure = new_figure(7.2, 6.0)
    first, second, third = figure.subplots(3, 1, sharex=True)
    _metrics(first, points, scale_s)
    _iteration_times(second, t_s / scale_s, t_s, done, unit)
    _memory(third, memory, limit_bytes, scale_s)
    for axes in (first, second, third):
        axes.grid(alpha=0.3)
    third.set_xlabel(f"Time since the start, {name}")
    third.set_xlim(0, max(last_s / scale_s, 1e-9))
    return png_of(figure, dpi=80)


def new_figure(width: float, height: float) -> Figure:
    """A picture of so many inches, which is drawn without a screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(name: str, most: int = 30) -> str:
    """Names are users' text: no mathematics to matplotlib, no control characters."""
    return shown(name, most)[1:-1].replace("$", r"\$")


def png_of(figure: Figure, *, dpi: int) -> bytes:
    """*figure* as a file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _metrics(axes: Axes, points: Sequence[ProgressPoint], scale_s: float) -> None:
    axes.set_ylabel("Metrics")
    drawn = False
    for name in _first_names(points):
        seen = [(point.t_s, point.metrics[name]) for point in points if name in point.metrics]
        seen = seen[:: _stride(len(seen))]
        at = [t_s / scale_s for t_s, _ in seen]
        marker = "." if len(seen) < 50 else ""
        axes.plot(at, [v for _, v in seen], marker=marker, label=f" {label(name)}")
        drawn = True
    if drawn:
        axes.legend(fontsize=8)
    else:
        nothing_to_draw(axes, "no metric in the log")


def _first_names(points: Sequence[ProgressPoint]) -> list[str]:
    """The first metrics that the log names; losses before others."""
    names: dict[str, None] = {}
    for point in points:
        names.update(dict.fromkeys(point.metrics))
        if len(names) > 50:
            break
    return sorted(names, key=lambda name: "loss" not in name.lower())[:_MAX_METRICS]


def _iteration_times(axes: Axes, at: Array, t_s: Array, done: Array, unit: str) -> None:
    axes.set_ylabel(f"Seconds per {unit}")
    steps = np.diff(done)
    times = np.diff(t_s)[steps > 0] / steps[steps > 0]
    when = at[1:][steps > 0]
    shown_ = times > 0
    times, when = times[shown_], when[shown_]
    if len(times) == 0:
        nothing_to_draw(axes, f"no {unit} times")
        return
    stride = _stride(len(times))
    axes.plot(when[::stride], times[::stride], ".", markersize=3, color="tab:green")
    axes.axhline(float(np.median(times)), color="grey", linewidth=1, label=" median")
    axes.legend(fontsize=8)
    if float(times.max()) > _LOG_RATIO * float(times.min()):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * float(times.max()))


def _memory(
    axes: Axes, memory: Sequence[tuple[float, int]], limit_bytes: int | None, scale_s: float
) -> None:
    if not memory:
        nothing_to_draw(axes, "not measured")
    thin = memory[:: _stride(len(memory))]
    highest = max([limit_bytes or 0, *(size for _, size in thin)])
    unit, name = (MIB, "MiB") if 0 < highest < GIB else (GIB, "GiB")
    axes.set_ylabel(f"Host memory, {name}")
    axes.plot([at / scale_s for at, _ in thin], [size / unit for _, size in thin], color="tab:red")
    if limit_bytes is not None:
        axes.axhline(limit_bytes / unit, color="black", linestyle="--", linewidth=1, label=" limit")
        axes.legend(fontsize=8, loc="center right")
    axes.set_ylim(0, 1.1 * (highest / unit or 1.0))


def nothing_to_draw(axes: Axes, text: str) -> None:
    """Say in the middle of *axes* why they are empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="grey")


def _stride(count: int) -> int:
    return max(1, -(-count // _MAX_POINTS))


def _unit_of_time(last_s: float) -> tuple[float, str]:
    if last_s < 5 * MINUTE_S:
        return 1.0, "seconds"
    return (MINUTE_S, "minutes") if last_s < 5 * HOUR_S else (HOUR_S, "hours")


def draw_options(found: Sequence[Mapping[str, Any]]) -> bytes:
    """PNG: each option with a predicted runtime, its interval, and the Pareto set joined.

    Args:
        found: Options as `estimate.choice.document` writes them.
    """
    figure = new_figure(6.4, 4.2)
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
    return png_of(figure, dpi=110)


def _done_h(option: Mapping[str, Any]) -> float:
    done_s: float = option["runtime_s"] + (option["wait_s"] or 0.0)
    return done_s / HOUR_S


def rising(points: Sequence[ProgressPoint]) -> tuple[Array, Array, str]:
    """When how much was done, and of what: iterations, or epochs where there is nothing finer.

    Points that bring nothing new are left out, and all before a restart, which
    counts from its own beginning.

    Returns:
        Seconds since the start; units done then, rising; the unit's name.
    """
    fine = [(p.t_s, float(p.iteration)) for p in points if p.iteration is not None]
    coarse = [(p.t_s, float(p.epoch)) for p in points if p.epoch is not None]
    chosen, unit = (fine, "iteration") if fine or not coarse else (coarse, "epoch")
    t_s: list[float] = []
    done: list[float] = []
    for at, count in chosen:
        if done and count < 0.5 * done[-1]:
            t_s, done = [], []
        if not done or (count > done[-1] and at >= t_s[-1]):
            t_s.append(at)
            done.append(count)
    return np.asarray(t_s, dtype=float), np.asarray(done, dtype=float), unit
