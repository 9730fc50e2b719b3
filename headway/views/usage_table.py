"""What teams and users held, as a table and as CSV: from what the gateway gives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headway.views.csv_text import csv_text

COLUMNS = (
    "team", "user", "runs", "gpu_hours", "idle_gpu_hours", "unmeasured_gpu_hours", "gib_hours",
    "unused_gib_hours", "cpu_hours", "unused_cpu_hours", "cost",
)  # fmt: skip
"""Keys of one row, which are the columns of the CSV."""


def usage_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as CSV, in which no name is a formula to a program that opens it."""
    return csv_text([COLUMNS, *([row.get(key) for key in COLUMNS] for row in rows)])


def usage_cells(row: Mapping[str, Any]) -> list[str]:
    """One row for people, under `HEADINGS`."""
    return [
        str(row.get("team", "all")),
        str(row.get("user", "")),
        str(row["runs"]),
        _hours(row["gpu_hours"]),
        _part(row["idle_gpu_hours"], row["gpu_hours"]),
        _hours(row["gib_hours"]),
        _part(row["unused_gib_hours"], row["gib_hours"]),
        _hours(row["cpu_hours"]),
        _part(row["unused_cpu_hours"], row["cpu_hours"]),
        f"{row['cost']:.2f}",
    ]


HEADINGS: Sequence[str] = (
    "team", "user", "runs", "GPU-hours", "idle", "GiB-hours", "not used", "CPU-hours", "not used",
    "cost",
)  # fmt: skip


def _hours(value: float) -> str:
    return f"{value:.1f}" if value else "0"


def _part(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else ""
