"""Commands about estimates: estimate, traces."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headway.cli.inputs import (
    A_FILE,
    FiniteRange,
    name_of,
    open_client,
    read_job_file,
    read_traces,
    this_site,
    with_places,
)
from headway.cli.output import as_json, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.estimate.trace_files import ImportedTraces

_LATER = (
    "estimates change after the next refit, each night; or now: "
    "prefect deployment run retrain-estimators/nightly"
)
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("job_file", type=A_FILE)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one field.")
@click.option("--budget", type=FiniteRange(min=0), help="Most it may cost.")
@click.option("--deadline", metavar="DURATION", help="Must end within, such as 8h.")
@click.option("--cheapest", "prefer", flag_value="cheapest", help="Choose by cost.")
@click.option("--fastest", "prefer", flag_value="fastest", default=True, help="Choose by time.")
@click.option("--plot", type=OUTPUT, help="Write cost against time as PNG.")
@as_json
def estimate(
    *,
    job_file: BinaryIO,
    overrides: tuple[str, ...],
    budget: float | None,
    deadline: str | None,
    prefer: str,
    plot: Path | None,
    machine: bool,
) -> None:
    """Say what a job would take, cost and need on each kind of node, and choose."""
    read = read_job_file(job_file, overrides)
    deadline_s = _seconds(deadline)
    with open_client() as client, with_places(read):
        found = client.estimate(
            read.job.document(), budget=budget, deadline_s=deadline_s, prefer=prefer
        )
    if plot is not None:
        from headway.views.charts import draw_options

        plot.write_bytes(draw_options(found))
    if machine:
        print_json({"options": found})
        return
    if not found:
        click.echo("no node of the site that takes runs could hold this job; see `headway nodes`")
        return
    print_table(
        [
            *("", "on", "gpus", "runtime", "80 % interval", "speed-up", "efficiency", "wait"),
            *("cost", "host", "each gpu", "basis"),
        ],
        [_option_row(option) for option in found],
    )
    click.echo(
        "→ chosen   * no other is both as fast and as cheap   "
        "! over budget or deadline, or out of the job's range"
    )
    if not found[0]["chosen"]:
        from headway.estimate.choice import nothing_fits

        click.echo(nothing_fits(found[0], budget, deadline_s))
    elif found[0]["shares"]:
        click.echo(found[0]["shares"]["words"])


@click.group()
def traces() -> None:
    """Measurements of finished runs: bring some in, take them out."""


@traces.command("import")
@click.argument("file", type=A_FILE)
@click.option("--source", default="imported", show_default=True, help="Tells them apart later.")
@as_json
def import_(file: BinaryIO, source: str, machine: bool) -> None:
    """Read traces from a CSV or Parquet file; bad rows are reported and left out."""
    got = read_traces(file, source)
    kept = 0
    if got.traces:
        site = this_site()
        site.make_ledger()  # traces may be there before the site is started
        kept = site.ledger.traces.add(got.traces)
    known = len(got.traces) - kept
    later = [_LATER] if kept else []
    if machine:
        print_json(
            {
                "imported": kept,
                "already_known": known,
                "left_out": [str(problem) for problem in got.problems],
                "metrics": got.metrics,
                "dropped_columns": got.dropped,
                "notices": [*got.notices, *later],
            }
        )
        sys.exit(_status(got))
    for problem in got.problems[:50]:
        say(str(problem), err=True)
    if len(got.problems) > 50:
        click.echo(f"… and {len(got.problems) - 50} more", err=True)
    say(
        f"{kept} traces imported from {Path(name_of(file)).name}, {known} known already, "
        f"{len(got.problems)} rows left out"
    )
    if got.metrics:
        say(f"kept as metrics: {', '.join(got.metrics)}")
    if got.dropped:
        say(f"not numbers, not kept: {', '.join(got.dropped)}")
    for notice in [*got.notices, *later]:
        say(notice)
    sys.exit(_status(got))


def _status(got: "ImportedTraces") -> int:
    """Exit status: bad input where there is no good row in it."""
    return 0 if got.traces else 2


@traces.command("export")
@click.option("--source", help="Only those of one source; all when not given.")
@click.option("--output", type=OUTPUT, help="File to write; standard output when not given.")
def export(source: str | None, output: Path | None) -> None:
    """Write traces as CSV, or as Parquet to NAME.parquet, that `traces import` reads again."""
    from headway.estimate.trace_files import write

    text = write(this_site().ledger.traces.all(source))
    if output is None:
        click.echo(text, nl=False)
    elif output.suffix == ".parquet":
        import pandas as pd

        pd.read_csv(io.StringIO(text), dtype_backend="numpy_nullable").to_parquet(output)
    else:
        output.write_text(text, encoding="utf-8")


def _seconds(text: str | None) -> float | None:
    from headway.errors import InvalidInput
    from headway.units import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        raise InvalidInput("--deadline", text, "give a duration such as 8h") from None


def _option_row(option: "Mapping[str, Any]") -> list[str]:
    from headway.units import format_duration, format_size

    mark = "→" if option["chosen"] else "*" if option["pareto"] else "" if option["within"] else "!"
    count, where = option["node_count"], option["gpu_type"]
    if option["runtime_s"] is None:
        times = ["unknown", ""]
    else:
        low, high = (format_duration(option[f"runtime_{end}_s"] or 0) for end in ("low", "high"))
        times = [format_duration(option["runtime_s"]), f"{low} – {high}"]
    gpu = format_size(option["gpu_memory_bytes"]) if option["gpus"] else ""
    if option["gpu_memory_interval_bytes"]:
        gpu += f" ({' – '.join(map(format_size, option['gpu_memory_interval_bytes']))} likely)"
    return [
        mark,
        f"{count} × {where}" if count > 1 else where,
        str(option["gpus"]),
        *times,
        f"{option['speed_up']:.2f} ×" if option["speed_up"] and option["gpus"] > 1 else "",
        f"{option['efficiency_frac']:.0%}" if option["speed_up"] and option["gpus"] > 1 else "",
        "unknown" if option["wait_s"] is None else format_duration(option["wait_s"]),
        "" if option["cost"] is None else f"{option['cost']:.2f}",
        format_size(option["host_memory_bytes"]),
        "whole" if option["whole_gpus"] else gpu,
        option["basis"],
    ]


COMMANDS = (estimate, traces)
