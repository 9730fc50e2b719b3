"""Commands about estimates: estimate, traces."""

import io
import sys
from pathlib import Path
from typing import BinaryIO

import click

from headway.cli.inputs import (
    A_FILE,
    DURATION,
    OUTPUT,
    FiniteRange,
    name_of,
    open_client,
    overrides,
    read_job_file,
    read_traces,
    this_site,
    with_folder,
    with_places,
)
from headway.cli.output import Columns, Json, as_json, print_json, print_rows, say
from headway.errors import NotInstalled
from headway.units import COST, format_cost, format_duration, format_size

_LATER = (
    "estimates change after the next refit, each night; or now: "
    "prefect deployment run retrain-estimators/nightly"
)


@click.command()
@click.argument("job_file", type=A_FILE)
@overrides
@click.option("--budget", type=FiniteRange(min=0), help="Most it may cost, in the site's currency.")
@click.option("--deadline", "deadline_s", type=DURATION, help="Must end within, such as 8h.")
@click.option("--cheapest", "prefer", flag_value="cheapest", help="Choose by cost.")
@click.option("--fastest", "prefer", flag_value="fastest", default=True, help="Choose by time.")
@click.option("--plot", type=OUTPUT, help="Write cost against time as PNG.")
@as_json
def estimate(
    *,
    job_file: BinaryIO,
    overrides: tuple[str, ...],
    budget: float | None,
    deadline_s: float | None,
    prefer: str,
    plot: Path | None,
    machine: bool,
) -> None:
    """Estimate a job's time, memory and cost on each kind of node.

    Examples:
      headway estimate job.yaml
      headway estimate job.yaml --deadline 8h --cheapest
    """
    read = read_job_file(job_file, overrides)
    with open_client() as client, with_places(read):
        job = with_folder(read.job.document(), job_file)
        found = client.estimate(job, budget=budget, deadline_s=deadline_s, prefer=prefer)
    if plot is not None:
        from headway.views.charts import draw_options

        plot.write_bytes(draw_options(found))
    if machine:
        print_json({"options": found})
        return
    if not found:
        click.echo("no node of the site that takes runs could hold this job; see `headway nodes`")
        return
    print_rows(_COLUMNS, found)
    click.echo(
        "→ chosen   * no other is both as fast and as cheap   "
        "! over budget or deadline, or out of the job's range"
    )
    if not found[0]["chosen"]:
        from headway.choice import nothing_fits

        click.echo(nothing_fits(found[0], budget, deadline_s))


@click.group()
def traces() -> None:
    """Import or export measurements of finished runs."""


@traces.command("import")
@click.argument("file", type=A_FILE)
@click.option("--source", default="imported", show_default=True, help="Tells them apart later.")
@as_json
def import_(file: BinaryIO, source: str, machine: bool) -> None:
    """Read traces from a CSV or Parquet file.

    Rows that are not valid are reported and left out.

    Examples:
      headway traces import runs.csv
      headway traces import runs.parquet --source old-cluster
    """
    got = read_traces(file, source)
    kept = 0
    if got.traces:
        site = this_site()
        site.make_ledger()  # traces may be there before the site is started
        kept = site.ledger.traces.add(got.traces)
    done = {
        "imported": kept,
        "already_known": len(got.traces) - kept,
        "left_out": [str(problem) for problem in got.problems],
        "metrics": got.metrics,
        "dropped_columns": got.dropped,
        "notices": [*got.notices, *([_LATER] if kept else [])],
    }
    if machine:
        print_json(done)
    else:
        _tell_imported(done, Path(name_of(file)).name)
    sys.exit(0 if got.traces else 2)  # bad input where there is no good row in it


def _tell_imported(done: Json, file: str) -> None:
    problems = done["left_out"]
    for problem in problems[:50]:
        say(problem, err=True)
    if len(problems) > 50:
        click.echo(f"… and {len(problems) - 50} more", err=True)
    say(
        f"{done['imported']} traces imported from {file}, {done['already_known']} known already, "
        f"{len(problems)} rows left out"
    )
    if done["metrics"]:
        say(f"kept as metrics: {', '.join(done['metrics'])}")
    if done["dropped_columns"]:
        say(f"not numbers, not kept: {', '.join(done['dropped_columns'])}")
    for notice in done["notices"]:
        say(notice)


@traces.command("export")
@click.option("--source", help="Only those of one source; all when not given.")
@click.option("--output", type=OUTPUT, help="File to write; standard output when not given.")
def export(source: str | None, output: Path | None) -> None:
    """Write traces as CSV, or as Parquet to NAME.parquet.

    `headway traces import` reads both.

    Examples:
      headway traces export --output runs.parquet
      headway traces export --source old-cluster > runs.csv
    """
    from headway.estimate.trace_files import write

    text = write(this_site().ledger.traces.all(source))
    if output is None:
        click.echo(text, nl=False)
    elif output.suffix == ".parquet":
        import pandas as pd

        table = pd.read_csv(io.StringIO(text), dtype_backend="numpy_nullable")
        try:
            table.to_parquet(output)
        except ImportError as error:
            raise NotInstalled("Parquet files", "pyarrow", "parquet") from error
    else:
        output.write_text(text, encoding="utf-8")


def _guess(option: Json) -> str:
    return "" if option.get("runtime_known", True) else "guess: "  # earlier gateways do not say


def _lasts(option: Json) -> str:
    if option["runtime_s"] is None:
        return "unknown"
    return _guess(option) + format_duration(option["runtime_s"])


def _interval(option: Json) -> str:
    if option["runtime_s"] is None:
        return ""
    return " – ".join(format_duration(option[f"runtime_{end}_s"] or 0) for end in ("low", "high"))


def _each_gpu(option: Json) -> str:
    if option["whole_gpus"]:
        return "whole"
    gpu = format_size(option["gpu_memory_bytes"]) if option["gpus"] else ""
    likely = option["gpu_memory_interval_bytes"]
    return gpu + (f" ({' – '.join(map(format_size, likely))} likely)" if likely else "")


def _where(option: Json) -> str:
    count, where = option["node_count"], option["gpu_type"]
    return f"{count} × {where}" if count > 1 else str(where)


def _mark(option: Json) -> str:
    return "→" if option["chosen"] else "*" if option["pareto"] else "" if option["within"] else "!"


def _scales(option: Json) -> bool:
    return bool(option["speed_up"]) and option["gpus"] > 1


_COLUMNS: Columns = {
    "": _mark,
    "on": _where,
    "gpus": "gpus",
    "runtime": _lasts,
    "80 % interval": _interval,
    "speed-up": lambda each: f"{each['speed_up']:.2f} ×" if _scales(each) else "",
    "efficiency": lambda each: f"{each['efficiency_frac']:.0%}" if _scales(each) else "",
    "wait": lambda each: "unknown" if each["wait_s"] is None else format_duration(each["wait_s"]),
    COST: lambda each: (_guess(each) if each["cost"] else "") + format_cost(each["cost"]),
    "host": lambda each: format_size(each["host_memory_bytes"]),
    "each gpu": _each_gpu,
    "basis": "basis",
}
