"""Commands about estimates: estimate, traces, estimators."""

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
    read_data,
    read_job_file,
    this_site,
    with_places,
)
from headway.cli.output import as_json, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.estimate.evaluation.evaluate import Score
    from headway.estimate.trace_files import ImportedTraces
    from headway.model.trace import Trace

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
    got = _read(file, source)
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


@click.group(invoke_without_command=True)
@click.pass_context
@as_json
def estimators(context: click.Context, machine: bool) -> None:
    """What predicts: how good it is, which versions there are.

    Alone: how far off times were that had been said of runs, week by week, and of which runs most.
    """
    if context.invoked_subcommand is not None:
        return
    from headway.client import frames

    with open_client() as client:
        table = frames.judged(frames.runs(client))
    weeks = (
        table.assign(week=table["ended_at"].dt.strftime("%G-W%V"))
        .groupby("week")
        .agg(
            runs=("error_frac", "size"),
            mean_error_frac=("error_frac", "mean"),
            median_error_frac=("error_frac", "median"),
            within_frac=("within", "mean"),
        )
        .reset_index()
    )
    worst = table.nlargest(10, "error_frac")[
        ["run_id", "name", "owner", "runtime_s", "predicted_s", "error_frac", "predicted_basis"]
    ]
    if machine:
        print_json({"weeks": weeks.to_dict("records"), "worst": worst.to_dict("records")})
        return
    if table.empty:
        click.echo("no run has ended of whose time something had been learnt")
        return
    _print_errors(weeks.to_dict("records"), worst.to_dict("records"))


def _print_errors(weeks: "list[dict[Any, Any]]", worst: "list[dict[Any, Any]]") -> None:
    from headway.estimate.evaluation.evaluate import readable
    from headway.units import format_duration

    print_table(
        ["week", "runs", "mean error", "median", "in 80 %"],
        [
            [
                row["week"],
                str(row["runs"]),
                readable(row["mean_error_frac"]),
                readable(row["median_error_frac"]),
                f"{row['within_frac']:.0%}",
            ]
            for row in weeks
        ],
    )
    print_table(
        ["predicted worst", "owner", "took", "said", "error", "what it rested on"],
        [
            [
                row["name"],
                row["owner"],
                format_duration(row["runtime_s"]),
                format_duration(row["predicted_s"]),
                readable(row["error_frac"]),
                row["predicted_basis"],
            ]
            for row in worst
        ],
    )


@estimators.command()
@click.option("--traces", "file", type=A_FILE, help="CSV or Parquet; the site's own otherwise.")
@click.option("--folds", default=5, show_default=True, help="Random parts, each held out once.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of the folds and the models.",
)
@click.option(
    "--leave-out",
    type=click.Choice(["network", "gpu_type", "gpus"]),
    help="Hold out whole groups instead of random folds.",
)
@click.option("--starts", is_flag=True, help="Score the starts that waiting runs were told.")
@as_json
def evaluate(
    *,
    file: BinaryIO | None,
    folds: int,
    seed: int,
    leave_out: str | None,
    starts: bool,
    machine: bool,
) -> None:
    """Score the model that predicts times on times that it has not seen."""
    if starts:
        _evaluate_starts(machine=machine)
        return
    from dataclasses import asdict

    from headway.clock import SystemClock
    from headway.estimate.evaluation.evaluate import LeaveOut
    from headway.estimate.evaluation.evaluate import evaluate as score_model
    from headway.estimate.physics import with_site
    from headway.settings import read_settings

    got = score_model(
        _traces(file),
        clock=SystemClock(),
        tables=this_site().tables if file is None else with_site(read_settings().home),
        folds=folds,
        leave_out=LeaveOut(leave_out) if leave_out else None,
        seed=seed,
    )
    if machine:
        print_json(asdict(got))
        return
    click.echo(f"{got.rows} rows, {got.folds} folds, seed {got.seed}; champion: {got.champion}")
    if got.left_out:
        click.echo(
            f"{len(got.left_out)} more contradict all that are like them and are not scored:"
        )
        for row in got.left_out[:10]:
            click.echo(f"  {row}")
    print_table(
        [
            "model",
            "mean",
            "median",
            "p95",
            "≤ 10 %",
            "≤ 20 %",
            "in 80 %",
            "width",
            "fit",
            "predict",
        ],
        [_score_row(name, each) for name, each in got.models.items()],
    )


def _evaluate_starts(*, machine: bool) -> None:
    """Say how well starts were said that have come."""
    from headway.estimate.starts import LOOKED_AT, scores_document

    site = this_site()
    site.ledger.starts.settle()
    rows = scores_document(site.ledger.starts.newest(LOOKED_AT))
    if machine:
        print_json(rows)
    elif not rows:
        click.echo("no run has waited and started yet of which a start was said")
    else:
        print_table(
            ["said", "starts", "in 80 %", "waited ≥ 1 min", "median error"],
            [
                [
                    row["said"],
                    str(row["starts"]),
                    f"{row['coverage_frac']:.1%}",
                    str(row["waited"]),
                    _share(row["median_error_frac"]),
                ]
                for row in rows
            ],
        )


def _share(frac: float | None) -> str:
    return "–" if frac is None else f"{frac:.1%}"


@estimators.command()
@as_json
def versions(machine: bool) -> None:
    """List the versions kept, and which is in use."""
    from headway.estimate import store

    directory = this_site().settings.models_dir
    used = store.current(directory)
    rows = [
        {"version": store.version_of(path), "file": path.name, "in_use": path == used}
        for path in store.versions(directory)
    ]
    if machine:
        print_json(rows)
        return
    print_table(
        ["version", "in use", "file"],
        [[str(r["version"]), "yes" if r["in_use"] else "", str(r["file"])] for r in rows],
    )


@estimators.command()
@click.argument("version", type=click.IntRange(min=1))
def use(version: int) -> None:
    """Use VERSION from now on: how to roll back."""
    from headway.errors import InvalidInput
    from headway.estimate import store

    directory = this_site().settings.models_dir
    kept = {store.version_of(path): path for path in store.versions(directory)}
    if version not in kept:
        allowed = f"give one of {', '.join(map(str, kept))}" if kept else "there is none yet"
        raise InvalidInput("version", version, allowed)
    store.read(kept[version])
    store.use(kept[version], directory)
    click.echo(f"version {version} is in use")


def _seconds(text: str | None) -> float | None:
    from headway.errors import InvalidInput
    from headway.units import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        raise InvalidInput("--deadline", text, "give a duration such as 8h") from None


def _read(file: BinaryIO, source: str) -> "ImportedTraces":
    from headway.estimate.trace_files import parse

    return parse(read_data(file), Path(name_of(file)).name, source)


def _traces(file: BinaryIO | None) -> "tuple[Trace, ...]":
    """Those of *file*, its bad rows reported; those of the site when None."""
    from headway.errors import InvalidInput

    if file is None:
        return tuple(this_site().ledger.traces.all())
    got, name = _read(file, "evaluated"), Path(name_of(file)).name
    for problem in got.problems[:20]:
        say(str(problem), err=True)
    if not got.traces:
        raise InvalidInput("rows", len(got.problems), "give one good row at least", where=name)
    return got.traces


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


def _score_row(name: str, each: "Score") -> list[str]:
    from headway.estimate.evaluation.evaluate import readable

    errors = (each.mean_relative_error, each.median_relative_error, each.p95_relative_error)
    shares = (each.within_10_frac, each.within_20_frac, each.coverage_80_frac)
    times = [f"× {each.width_80:.2f}", f"{each.fit_s:.1f} s", f"{each.predict_s:.2f} s"]
    return [name, *map(readable, errors), *(f"{share:.1%}" for share in shares), *times]


COMMANDS = (estimate, traces, estimators)
