"""The command `estimators`: how good what predicts is, and which versions of it there are."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import click

from headway.cli.inputs import A_FILE, name_of, open_client, read_traces, this_site
from headway.cli.output import Json, as_json, print_json, print_table, say, told_by
from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.model.trace import Trace


@click.group(invoke_without_command=True)
@click.pass_context
@as_json
def estimators(context: click.Context, machine: bool) -> None:
    """Show how well runtimes are predicted; manage the estimators.

    Without a command: how far off the predicted times were, week by week, and for which runs most.

    Examples:
      headway estimators
      headway estimators scores
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
        click.echo("no run has ended yet whose time was predicted from earlier runs")
        return
    _show(weeks.to_dict("records"))
    click.echo("predicted worst:")
    _show(worst.drop(columns="run_id").to_dict("records"))


def _show(rows: list[dict[Any, Any]]) -> None:
    """A table of *rows*, if there are any."""
    from headway.views.tables import told

    if text := told(rows):
        print_table([*text[0]], [[*row.values()] for row in text])


@estimators.command()
@click.option("--traces", "file", type=A_FILE, help="CSV or Parquet; the site's own otherwise.")
@click.option("--starts", is_flag=True, help="Score the starts that waiting runs were told.")
@as_json
def evaluate(file: BinaryIO | None, *, starts: bool, machine: bool) -> None:
    """Compare the candidates now and say which is best for what.

    They are scored on the traces of a file, or on the site's own.

    Examples:
      headway estimators evaluate
      headway estimators evaluate --traces runs.csv --json
    """
    if starts:
        _evaluate_starts(machine=machine)
        return
    from headway.estimate.evaluation.tournament import tournament
    from headway.estimate.physics import with_site
    from headway.settings import read_settings

    traces = _traces(file)
    tables = this_site().tables if file is None else with_site(read_settings().home)
    met = tournament(traces, tables, clock=SystemClock())
    if met is None:
        allowed = "give more that have measured the time of the same, a run, epoch or iteration"
        raise InvalidInput("traces", len(traces), allowed)
    found = asdict(met) | {"words": met.words()}
    (print_json if machine else _tell_scores)(found)


def _evaluate_starts(*, machine: bool) -> None:
    """Say how well starts were said that have come."""
    from headway.estimate.starts import LOOKED_AT, scores_document

    site = this_site()
    site.ledger.starts.settle()
    rows = scores_document(site.ledger.starts.newest(LOOKED_AT))
    if machine:
        print_json(rows)
    elif not rows:
        click.echo("no run for which a start was predicted has waited and started yet")
    else:
        _show(rows)


def _tell_scores(found: Json) -> None:
    if not found:
        click.echo("no estimators have been compared yet: too few runs have a measured time")
        return
    click.echo(found["words"])
    for part in ("table", "calibration", "worst"):
        _show(found[part])


@estimators.command()
@told_by(_tell_scores)
def scores() -> Json:
    """Show last night's scores of the candidates, and the champions.

    Scores are told apart by what was new in a run.

    Examples:
      headway estimators scores
      headway estimators scores --json
    """
    from headway.estimate.kinds import TOURNAMENT

    return this_site().ledger.settings.get(TOURNAMENT) or {}


@estimators.command()
@told_by(_show)
def versions() -> list[Json]:
    """List the versions kept, and which is in use.

    Examples:
      headway estimators versions
      headway estimators versions --json
    """
    from headway.estimate import store

    directory = this_site().settings.models_dir
    used = store.current(directory)
    return [
        {"version": store.version_of(path), "file": path.name, "in_use": path == used}
        for path in store.versions(directory)
    ]


@estimators.command()
@click.argument("version", type=click.IntRange(min=1))
def use(version: int) -> None:
    """Use VERSION from now on, for example to roll back.

    Examples:
      headway estimators use 3
      headway estimators use 12
    """
    from headway.estimate import store

    directory = this_site().settings.models_dir
    kept = {store.version_of(path): path for path in store.versions(directory)}
    if version not in kept:
        allowed = f"give one of {', '.join(map(str, kept))}" if kept else "there is none yet"
        raise InvalidInput("version", version, allowed)
    store.read(kept[version])
    store.use(kept[version], directory)
    click.echo(f"version {version} is in use")


def _traces(file: BinaryIO | None) -> tuple[Trace, ...]:
    """Those of *file*, its bad rows reported; those of the site when None."""
    if file is None:
        return tuple(this_site().ledger.traces.all())
    got, name = read_traces(file, "evaluated"), Path(name_of(file)).name
    for problem in got.problems[:20]:
        say(str(problem), err=True)
    if not got.traces:
        raise InvalidInput("rows", len(got.problems), "give one good row at least", where=name)
    return got.traces
