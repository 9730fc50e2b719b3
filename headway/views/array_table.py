"""The members of an array as a table, and how they stand as words: from what the gateway gives."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.views.csv_text import csv_text


def columns_of(rows: Sequence[Mapping[str, Any]], part: str) -> list[str]:
    """Names of the parameters, or metrics, that any of *rows* has, in the order they come."""
    return list(dict.fromkeys(name for row in rows for name in row[part]))


def results_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The members as CSV: their parameters and last metrics, each a column."""
    parameters, metrics = columns_of(rows, "parameters"), columns_of(rows, "metrics")
    table = [["index", "run_id", *parameters, "state", "runtime_s", *metrics]]
    for row in rows:
        given = [row["parameters"].get(name) for name in parameters]
        found = [row["metrics"].get(name) for name in metrics]
        table.append([row["index"], row["run_id"], *given, row["state"], row["runtime_s"], *found])
    return csv_text(table)


def array_counts(view: Mapping[str, Any]) -> str:
    """How the members of an array stand, for people: ``12 wait, 4 run, 3 ended well``."""
    words = (
        ("waiting", "wait"),
        ("running", "run"),
        ("ended_well", "ended well"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
    )
    told = [f"{view[key]} {word}" for key, word in words if view[key]]
    return ", ".join(told)


def end_text(view: Mapping[str, Any]) -> str:
    """When the last member is expected to end, as words that follow others; none if unknown."""
    if view["expected_end_at"] is None:
        return ""
    end = datetime.fromisoformat(view["expected_end_at"]).astimezone()
    return f", ends about {end:%d %b %H:%M}"
