"""Words and tables from what the gateway gives: arrays, nodes, the queue, usage."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.policy.outlook import around
from headway.units import format_size


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """*rows*, of which the first has the headings."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_no_formula(cell) for cell in row] for row in rows
    )
    return text.getvalue()


def _no_formula(value: object) -> object:
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


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


def state_text(view: Mapping[str, Any]) -> str:
    """The state of a `node_view` for people, with its reason."""
    return (
        f"{view['state']} ({view['state_reason']})" if view["state_reason"] else str(view["state"])
    )


def cache_text(cache: Mapping[str, Any]) -> str:
    """The data cache of a `node_view` for people: what is in it, and how often that was enough."""
    asked = cache["hits"] + cache["copies"]
    spared = f", {cache['hits']} of {asked} were there" if asked else ""
    return f"{format_size(cache['size_bytes'])}{spared}"


def gpus_text(gpus: Iterable[Mapping[str, Any]]) -> str:
    """The GPUs of a node's view for people: what is promised of them, and which are lost."""
    alike = Counter(_gpu_text(gpu) for gpu in gpus)
    return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in alike.items())


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    if gpu["lost"]:
        return f"gpu{gpu['index']} lost: {gpu['lost']}"
    promised = f"{format_size(gpu['promised_bytes'])} of {format_size(gpu['memory_bytes'])}"
    return f"{gpu['name']} {promised}"


OF_OTHERS = "of another team"
"""In the place of the name of a run that is not shown."""


def waiting_name(view: Mapping[str, Any]) -> str:
    """What a line of the queue is called, for people."""
    more = (view["array_waiting"] or 1) - 1
    name = view["name"] or OF_OTHERS
    return f"{name} and {more} more of its array" if more > 0 else str(name)


def start_text(view: Mapping[str, Any], now: datetime) -> str:
    """When a waiting run is expected to start, by *now*'s clock: ``about 07:06 (07:02–07:15)``."""
    if view["starts_now"]:
        return "now"
    names = ("earliest_start_at", "expected_start_at", "latest_start_at")
    times = [view[name] and datetime.fromisoformat(view[name]) for name in names]
    first, expected, last = (each and each.astimezone(now.tzinfo) for each in times)
    if expected is None:
        return "not known" + (f": {view['start_unknown']}" if view["start_unknown"] else "")
    return around(first, expected, last, now)


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
