"""`headway top`: nodes, GPUs, runs and the queue as one picture."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headway.clock import SystemClock
from headway.errors import shown
from headway.model.run import RunState
from headway.model.run_warning import RunWarning
from headway.site import Site
from headway.units import format_duration, format_size
from headway.views.array_document import array_views
from headway.views.fields import fields
from headway.views.node_document import node_shown
from headway.views.queue_document import array_lines, line_views
from headway.views.run_document import warning_view
from headway.views.site_snapshot import RunProgress, progress_of_runs
from headway.views.tables import (
    array_counts,
    out_of_service,
    start_text,
    state_text,
    waiting_name,
)

_BAR_CELLS = 12


def document(site: Site) -> dict[str, Any]:
    """What is shown of *site* now, as plain data: nodes, running runs, and those that wait."""
    ledger = site.ledger
    leases, warnings = ledger.leases.live(), ledger.warnings.going_on()
    caches, tables, now = ledger.staged.uses(), site.tables, ledger.now()
    running = progress_of_runs(site, ledger.runs.all(states=(RunState.RUNNING,)))
    return {
        "nodes": [node_shown(record, now, leases, caches, tables) for record in ledger.nodes.all()],
        "runs": [_run(each, warnings) for each in running],
        "arrays": array_views(site, ledger.arrays.going_on()),
        "queue": array_lines(site, line_views(site)),
    }


def _run(progress: RunProgress, warnings: Sequence[RunWarning]) -> dict[str, Any]:
    run_id = progress.record.run_id
    return {
        **fields(progress.record, "run_id", "name", "owner", "team", "node", "array_id"),
        **fields(progress, "elapsed_s", "done_frac", "remaining_s", "progress_text"),
        "warnings": [warning_view(each) for each in warnings if each.failure.run_id == run_id],
    }


def picture(seen: dict[str, Any]) -> Group:
    """*seen*, from `document`, for a terminal; of an array one line."""
    arrays = {array["array_id"] for array in seen["arrays"]}
    runs = [run for run in seen["runs"] if run["array_id"] not in arrays]
    running = _runs(runs, seen["arrays"])
    return Group(_nodes(seen["nodes"]), "", running, "", _queue(seen["queue"]))


def bar(part: float | None, whole: float) -> str:
    """How full something is, such as ``██████······  50 %``; ``–`` when not known."""
    if part is None or whole <= 0:
        return "–"
    frac = max(part / whole, 0.0)
    full = round(min(frac, 1.0) * _BAR_CELLS)
    return f"{'█' * full}{'·' * (_BAR_CELLS - full)} {frac:4.0%}"


def _nodes(nodes: Sequence[dict[str, Any]]) -> Table:
    table = _table("nodes", "", "memory used", "of", "promised", "busy")
    for node in nodes:
        total = node["host_memory_bytes"]
        table.add_row(
            _plain(f"{node['node']}  {state_text(node)}"),
            bar(node["host_used_bytes"], total),
            format_size(total),
            format_size(node["host_promised_bytes"]),
            f"{node['cpus_promised']:g} of {node['cpus']:g} CPUs promised",
        )
        if node["gpu_error"]:
            table.add_row(_plain(f"  {node['gpu_error']}", style="red"))
        for gpu in node["gpus"]:
            if out := out_of_service(gpu):
                text = f"  gpu{gpu['index']}  {gpu['name']}  {out}"
                table.add_row(_plain(text, style="red"))
                continue
            table.add_row(
                _plain(f"  gpu{gpu['index']}  {gpu['name']}"),
                bar(gpu["used_bytes"], gpu["memory_bytes"]),
                format_size(gpu["memory_bytes"]),
                format_size(gpu["promised_bytes"]),
                bar(gpu["utilisation_frac"], 1.0),
            )
    return table


def _runs(runs: Sequence[dict[str, Any]], arrays: Sequence[dict[str, Any]]) -> Table:
    table = _table("running", "", "node", "done", "for", "remaining")
    now = SystemClock().now()
    for array in arrays:
        end = array["expected_end_at"]
        left_s = end and max((datetime.fromisoformat(end) - now).total_seconds(), 0.0)
        ended = array["ended_well"] + array["failed"] + array["cancelled"]
        table.add_row(
            _plain(f"{array['name']} ({array['size']} members): {array_counts(array)}"),
            "",
            bar(ended, array["size"]),
            "",
            _duration(left_s),
        )
    for run in runs:
        done = "" if run["done_frac"] is None else f"{run['done_frac']:.0%}"
        table.add_row(
            _plain(run["name"]),
            _plain(run["node"] or ""),
            bar(run["done_frac"], 1.0),
            _duration(run["elapsed_s"]),
            (run["progress_text"] or "").removeprefix(done).removeprefix(", ") or "–",
        )
        for warning in run["warnings"]:
            table.add_row(_plain(f"  {warning['kind']}: it {warning['text']}", style="yellow"))
    return table


def _queue(queue: Sequence[dict[str, Any]]) -> Table:
    now = SystemClock().now().astimezone()  # the terminal's time zone
    table = _table("waiting", "", "owner", "expected start", "reason")
    for run in queue:
        table.add_row(
            _plain(f"{run['position']}  {waiting_name(run)}"),
            _plain(run["owner"] or ("unknown" if run["run_id"] else "")),
            _plain(start_text(run, now)),
            _plain(run["reason"] or ""),
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, expand=True, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left", overflow="fold")
    return table


def _plain(text: str, style: str = "") -> Text:
    """Names are users' text: no markup, no control characters."""
    return Text(shown(text, limit=200)[1:-1], style=style)


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)
