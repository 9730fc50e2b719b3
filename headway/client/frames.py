"""The site as pandas data frames: of what the caller may see, in columns with fixed types.

    import headway

    runs = headway.runs()
    runs.groupby("owner")["duration_s"].median()

Times are in seconds, memory in bytes, shares from 0 to 1, moments in UTC; docs/python.md has all
columns. Each function takes a `Client`; without one it asks the gateway that you are logged in to.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from pandas.api.types import pandas_dtype

from headway.client import Client

TEXT, NUMBER, COUNT, YES_NO, MOMENT = "string", "Float64", "Int64", "boolean", "moment"

TRACES = {
    **dict.fromkeys(("run_id", "source", "recipe", "network", "framework", "precision"), TEXT),
    **dict.fromkeys(("gpu_type", "exit", "owner", "team"), TEXT),
    **dict.fromkeys(("gpus", "nodes", "batch_size", "data_threads", "iterations"), COUNT),
    **dict.fromkeys(("dataset_bytes", "dataset_samples"), COUNT),
    **dict.fromkeys(("host_peak_bytes", "gpu_peak_bytes"), COUNT),
    **dict.fromkeys(("iteration_s", "epoch_s", "runtime_s", "samples_per_s"), NUMBER),
    **dict.fromkeys(("epochs", "cpus", "flops", "params", "activations", "layers"), NUMBER),
    "started_at": MOMENT,
}
RUNS = {
    **dict.fromkeys(("run_id", "name", "owner", "team", "state", "reason", "node"), TEXT),
    **dict.fromkeys(("exit", "predicted_basis", "progress_text"), TEXT),
    "attempt": COUNT,
    **dict.fromkeys(("submitted_at", "started_at", "ended_at"), MOMENT),
    **dict.fromkeys(
        ("duration_s", "runtime_s", "predicted_s", "predicted_low_s", "predicted_high_s"), NUMBER
    ),
    **dict.fromkeys(
        ("done_frac", "remaining_s", "remaining_low_s", "remaining_high_s", "remaining_cost"),
        NUMBER,
    ),
}
CURVE = {"t_s": NUMBER, "iteration": COUNT, "epoch": NUMBER, "total": COUNT}
USAGE = {"team": TEXT, "user": TEXT, "runs": COUNT}
QUEUE = {
    "position": COUNT,
    **dict.fromkeys(("run_id", "name", "owner", "team", "resource", "reason"), TEXT),
    **dict.fromkeys(("attempt", "needs_host_memory_bytes", "needs_gpus"), COUNT),
    "starts_now": YES_NO,
    **dict.fromkeys(("expected_start_at", "earliest_start_at", "latest_start_at"), MOMENT),
    **dict.fromkeys(("promised_start_at", "planned_at"), MOMENT),
    "predicted_runtime_s": NUMBER,
}
NODES = {
    **dict.fromkeys(("node", "pool", "state", "state_reason"), TEXT),
    **dict.fromkeys(("cpus", "cpus_promised"), NUMBER),
    **dict.fromkeys(("host_memory_bytes", "host_reserve_bytes", "host_promised_bytes"), COUNT),
    "host_used_bytes": COUNT,
    "gpus": COUNT,
}


def traces(client: Client | None = None) -> pd.DataFrame:
    """What runs have measured, one row a run, and what was imported; its settings by name, too."""
    rows = _asked(client, Client.traces)
    return frame(({**row, **row["metrics"]} for row in rows), TRACES, more=True)


def runs(client: Client | None = None, limit: int = 10_000) -> pd.DataFrame:
    """The newest runs, newest first, with what had been predicted."""
    rows = _asked(client, lambda asked: asked.runs(limit, members=True))
    return frame(({**row, "exit": (row["exit"] or {}).get("kind")} for row in rows), RUNS)


def curve(run: str, client: Client | None = None) -> pd.DataFrame:
    """What the log of the newest attempt of *run* has reported, with a column for each metric."""
    points = _asked(client, lambda asked: asked.progress(run))["points"]
    return frame(({**point, **point["metrics"]} for point in points), CURVE, more=True)


def usage(month: str | None = None, client: Client | None = None) -> pd.DataFrame:
    """What teams and users held in a *month*, such as 2026-11; in the present one for None."""
    rows = _asked(client, lambda asked: asked.usage(month=month))["rows"]
    return frame(rows, USAGE, more=True)


def queue(client: Client | None = None) -> pd.DataFrame:
    """Who waits, the first in line first; of other teams only the places."""
    return frame(_asked(client, Client.queue), QUEUE)


def nodes(client: Client | None = None) -> pd.DataFrame:
    """What each node has, what is promised of it, and what is in use; its GPUs as their number."""
    rows = _asked(client, Client.nodes)
    return frame(({**row, "gpus": len(row["gpus"])} for row in rows), NODES)


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `runs` that ended well and had an estimate, with `error_frac` and `within`.

    `within` says whether the measured time lay in the 80 % interval. A prior is no estimate.
    """
    learnt = ~table["predicted_basis"].fillna("prior").str.startswith("prior")
    known = learnt & (table["state"] == "Completed")
    said = table[(known & (table["runtime_s"] > 0) & table["predicted_s"].notna()).fillna(False)]
    error = (said["predicted_s"] / said["runtime_s"] - 1).abs()
    within = said["runtime_s"].between(said["predicted_low_s"], said["predicted_high_s"])
    return said.assign(error_frac=error, within=within)


def frame(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, more: bool = False
) -> pd.DataFrame:
    """*rows* in these *columns*, each of its type, also without any row.

    Args:
        rows: What was answered.
        columns: Name and type.
        more: Whether numbers in other columns are kept behind them.
    """
    table = pd.DataFrame.from_records(list(rows))
    found = pd.DataFrame(index=table.index)
    for name, kind in columns.items():
        values = table[name] if name in table else pd.Series(None, table.index, dtype="object")
        if kind is MOMENT:
            found[name] = pd.to_datetime(values, utc=True, format="ISO8601").dt.as_unit("us")
        else:
            found[name] = values.astype(pandas_dtype(kind))
    for name in table.columns.difference([*columns], sort=False) if more else ():
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.notna().any():
            found[name] = numbers.astype(pandas_dtype(NUMBER))
    return found


def _asked(client: Client | None, ask: Any) -> Any:
    if client is not None:
        return ask(client)
    with Client() as own:
        return ask(own)
