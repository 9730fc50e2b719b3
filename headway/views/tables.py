"""Words, figures and tables for people: arrays, nodes, the queue, usage, and how far runs are."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.model.attempt_record import ProgressSnapshot
from headway.model.node import MemoryMeans
from headway.model.progress import ProgressPoint
from headway.model.run import Span
from headway.policy.outlook import around
from headway.units import COST, CURRENCY, format_cost, format_duration, format_size


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
    """The GPUs of a node's view for people: what is promised of them, and which take no runs."""
    alike = Counter(_gpu_text(gpu) for gpu in gpus)
    return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in alike.items())


def out_of_service(gpu: Mapping[str, Any]) -> str:
    """Why a GPU takes no runs, for people; empty where it does."""
    if gpu.get("drained"):  # a gateway of an earlier version has no such field
        return f"drained: {gpu['drained']}"
    return f"lost: {gpu['lost']}" if gpu["lost"] else ""


_KEPT: Mapping[str, str] = {
    MemoryMeans.DRIVER_LIMIT: ", kept by the driver",
    MemoryMeans.MIG: ", one run a slice",
    MemoryMeans.WHOLE: ", one run at a time",
}
"""By what runs are kept to their memory; of the usual, the watch, nothing is said."""


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    if out := out_of_service(gpu):
        return f"gpu{gpu['index']} {out}"
    promised = f"{format_size(gpu['promised_bytes'])} of {format_size(gpu['memory_bytes'])}"
    holders = [f"run {each['run_id'][:8]}" for each in gpu.get("runs") or ()]
    holders += [stranger_text(each) for each in gpu.get("strangers") or ()]
    by = f" (gpu{gpu['index']}: {', '.join(holders)})" if holders else ""
    kept = _KEPT.get(gpu.get("memory_kept_by", ""), "")
    return f"{gpu['name']} {promised}{kept}{by}"


def stranger_text(process: Mapping[str, Any]) -> str:
    """A program on a GPU that is no run's, for people."""
    held, since = process["memory_bytes"], process["since"]
    who = f"{process['user']}'s {process['command']}, pid" if process["user"] else "pid"
    memory = "" if held is None else f", {format_size(held)}"
    return f"{who} {process['pid']}{memory}{(since and f', since {since[:16]}') or ''}"


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
    "idle_cost",
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
        f"{row.get('idle_cost', 0.0):.2f}",
    ]


HEADINGS: Sequence[str] = (
    "team", "user", "runs", "GPU-hours", "GPUs idle", "GiB-hours", "memory not used", "CPU-hours",
    "CPUs not used", COST, "of it idle GPUs",
)  # fmt: skip


def _hours(value: float) -> str:
    return f"{value:.1f}" if value else "0"


def _part(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else ""


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


_NARROW = 1.5
"""An interval whose ends differ by no more than so many times is told by its middle alone."""
BY_OTHERS = "as long as earlier runs lasted"
GOES_ON = "and it goes on; how long is not known"


def left_text(left: Span, cost: float | None = None, *, is_range: bool = False) -> str:
    """How long it still takes; also what that costs, where the site has prices.

    Args:
        left: Seconds, with the ends of their 80 % interval.
        cost: Of the middle.
        is_range: Both ends are told, however near they are.
    """
    if left.high_s <= _NARROW * left.low_s and not is_range:
        text = format_duration(left.median_s)
    elif left.low_s < 1.0:
        text = f"at most {format_duration(left.high_s)}"
    else:
        text = f"{format_duration(left.low_s)} to {format_duration(left.high_s)}"
    return f"{text} left" + (f" for {format_cost(cost)} ({CURRENCY})" if cost else "")


def place_text(at: ProgressPoint | ProgressSnapshot) -> str:
    """Where a run is, such as ``at iteration 1,000 of 5,000``; empty where it says no place."""
    unit, done = ("epoch", at.epoch) if at.iteration is None else ("iteration", at.iteration)
    if done is None:
        return ""
    return f"at {unit} {done:,.10g}" + (f" of {at.total:,}" if at.total else "")


def unknown_text(per_s: float | None) -> str:
    """What is said of a run that tells no total, *per_s* units a second where that is known."""
    unknown = "how many there will be is not known"
    if not per_s:
        return unknown
    return f"{per_s:{',.0f' if per_s >= 10.0 else '.2g'}}/s; {unknown}"


def progress_text(far: ProgressSnapshot | None, left: Span | None, cost: float | None) -> str:
    """How far a run is, in one line; empty where nothing is known.

    Args:
        far: What its log and its files say.
        left: How long it still takes: by these, or by how long runs like it lasted.
        cost: Of the time that is left.
    """
    if far is not None and far.done_frac is not None:
        place = place_text(far)
        done = f"{far.done_frac:.0%}" + (f" ({place})" if place else "")
        if left is None:
            return done if far.done_frac < 1.0 else f"{done}, {GOES_ON}"
        return f"{done}, {left_text(left, cost)}"
    place = "" if far is None else place_text(far)
    if far is not None and place:
        place = f"{place}, {unknown_text(far.per_s)}"
    if left is None:
        return place
    by_others = f"{left_text(left, cost, is_range=True)}, {BY_OTHERS}"
    return f"{place}; {by_others}" if place else by_others
