"""The results of an array as a PNG: one metric against each of its parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from headway.views.array_table import columns_of
from headway.views.charts import label, new_figure, nothing_to_draw, png_of

_MOST_PARAMETERS = 4
_LOG_RATIO = 20.0
_MOST_WORDS = 12


def draw_results(rows: Sequence[Mapping[str, Any]], metric: str | None) -> bytes:
    """PNG: *metric*, else the first that any member told, against each parameter that varies.

    Args:
        rows: Members, as `members_document` gives them.
        metric: Its name; None for the first.
    """
    known = columns_of(rows, "metrics")
    metric = metric or (known[0] if known else None)
    told = [row for row in rows if metric in row["metrics"]]
    varied = [name for name in columns_of(told, "parameters") if _varies(told, name)]
    names = varied[:_MOST_PARAMETERS] or columns_of(told, "parameters")[:1] or [""]
    figure = new_figure(3.4 * len(names) + 0.6, 3.4)
    for position, (axes, name) in enumerate(
        zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True)
    ):
        if metric is None or not told:
            nothing_to_draw(axes, "no member has told a metric yet")
            continue
        _against(axes, told, name, metric)
        if position == 0:
            axes.set_ylabel(label(metric))
    return png_of(figure, dpi=110)


def _varies(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({str(row["parameters"].get(name)) for row in rows}) > 1


def _against(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, metric: str) -> None:
    given = [row["parameters"].get(name) for row in rows]
    found = [row["metrics"][metric] for row in rows]
    axes.grid(alpha=0.3)
    axes.set_xlabel(label(name))
    if all(isinstance(value, int | float) for value in given):
        axes.scatter(given, found, s=16, alpha=0.7)
        if min(given) > 0 and max(given) / min(given) > _LOG_RATIO:
            axes.set_xscale("log")
        return
    words = list(dict.fromkeys(str(value) for value in given))
    axes.scatter([words.index(str(value)) for value in given], found, s=16, alpha=0.7)
    if len(words) <= _MOST_WORDS:
        axes.set_xticks(range(len(words)), [label(word) for word in words], rotation=30)
