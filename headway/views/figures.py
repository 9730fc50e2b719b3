"""Rows of figures for people: one rule for what a column's name says its values are."""

from collections.abc import Iterable, Mapping
from typing import Any

from headway.units import format_duration

MOST_IN_PERCENT = 2.0
"""A relative error above is told as a factor."""


def told(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """*rows* as text, their columns with spaces and without the unit that the text has."""
    return [
        {_title(name): _cell(name, value) for name, value in row.items() if _title(name)}
        for row in rows
    ]


def readable(relative_error: float) -> str:
    """*relative_error* for people: in per cent, or as a factor where per cent say nothing."""
    if not relative_error <= MOST_IN_PERCENT:
        factor = 1.0 + relative_error
        return f"× {factor:.1f}" if factor < 100 else f"× {factor:,.0f}"
    return f"{relative_error:.1%}"


def _title(name: str) -> str:
    for end in ("_frac", "_s"):
        name = name.removesuffix(end)
    return name.replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else ""
    if not isinstance(value, float):
        return str(value)
    if name.endswith(("_frac", "_error")):
        return readable(value)
    if name.endswith("_s"):
        return format_duration(value) if value >= 1.0 else f"{value:.3g} s"
    return f"{value:.3g}"
