"""Commands about progress: what a log says, and how good the remaining time would have been."""

import json
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import click

from headway.cli.inputs import A_FILE, FiniteRange, name_of, read_data
from headway.cli.output import Columns, Json, as_json, print_json, print_rows, say
from headway.errors import shown
from headway.estimate.remaining.backtest import backtest
from headway.estimate.remaining.diagnostics import diagnose
from headway.estimate.remaining.series import read_series
from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser
from headway.units import format_duration

_CHUNK_BYTES = 1 << 20
_SHOWN_POINTS = 20
"""So many of the newest points are printed for people."""


@click.group()
def progress() -> None:
    """What a log says about progress, and how well remaining time is told."""


@progress.command()
@click.argument("logfile", type=A_FILE)
@click.option("--pattern", metavar="RE2", help="The job's own regular expression.")
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs there are, as in the job.")
@as_json
def parse(logfile: BinaryIO, pattern: str | None, epochs: int | None, machine: bool) -> None:
    """Show the format that is found in LOGFILE and the points in it.

    The file is read in pieces, so a log of any size is fine. A log that says
    nothing of progress has the format null and no points; that is no error.
    """
    parser = LogParser(pattern, epochs=epochs)
    points = _points(logfile, parser)
    if machine:
        _stream_json(points, parser)
        return
    count, newest = 0, deque[ProgressPoint](maxlen=_SHOWN_POINTS)
    for point in points:
        count += 1
        newest.append(point)
    say(f"{parser.format or 'no known format'}: {count} points in {Path(name_of(logfile)).name}")
    if count > _SHOWN_POINTS:
        click.echo(f"the last {_SHOWN_POINTS}:")
    if newest:
        print_rows(_POINT, newest)


@progress.command()
@click.argument("series", type=A_FILE)
@click.option("--prior", "prior_s", type=FiniteRange(min=0, min_open=True), metavar="SECONDS")
@as_json
def replay(series: BinaryIO, prior_s: float | None, machine: bool) -> None:
    """Walk the recorded SERIES and score what would have been said of the time left.

    A CSV file with the columns t_s, iteration, total and perhaps epoch. Errors are the mean of
    |said - true| / true, over all moments and after a tenth of the run; "early" is how often
    the interval held before the first epoch ended, or in the first tenth.
    """
    recorded = read_series(read_data(series), name_of(series))
    scores = backtest(recorded, prior_s)
    found = diagnose(recorded.t_s, recorded.iteration)
    if machine:
        print_json({"headway": _known(asdict(scores)), "diagnostics": _known(asdict(found))})
        return
    print_rows(_SCORES, [scores])
    click.echo(found.sentence())


def _points(file: BinaryIO, parser: LogParser) -> Iterator[ProgressPoint]:
    # The file does not say when it was written, unless its lines do.
    while data := file.read(_CHUNK_BYTES):
        yield from parser.feed(data, math.nan)
    yield from parser.finish(math.nan)


def _stream_json(points: Iterator[ProgressPoint], parser: LogParser) -> None:
    """One document, written point by point: a long log has millions."""
    click.echo('{"points": [', nl=False)
    for number, point in enumerate(points):
        click.echo((", " if number else "") + json.dumps(_document(point)), nl=False)
    click.echo(f'], "format": {json.dumps(parser.format)}}}')


def _document(point: ProgressPoint) -> Json:
    known = point._asdict()
    return known | {
        "metrics": dict(point.metrics),
        "t_s": point.t_s if math.isfinite(point.t_s) else None,
    }


def _metrics(point: ProgressPoint) -> str:
    told = [f"{shown(name, 40)[1:-1]}={value:.4g}" for name, value in point.metrics.items()]
    return " ".join(told[:6])


_POINT: Columns = {
    "t": lambda point: format_duration(point.t_s) if math.isfinite(point.t_s) else "",
    "iteration": lambda point: point.iteration,
    "epoch": lambda point: None if point.epoch is None else f"{point.epoch:.4g}",
    "total": lambda point: point.total,
    "metrics": _metrics,
}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """*fields* without those that hold nothing."""
    return {name: value for name, value in fields.items() if value is not None}


def _share(covered: float | None) -> str:
    return "" if covered is None else f"{covered:.0%}"


_SCORES: Columns = {
    "from the first": lambda scores: f"{scores.from_first:.1%}",
    "after 10 %": lambda scores: f"{scores.after_10_percent:.1%}",
    "in the 80 % interval": lambda scores: _share(scores.interval_coverage_frac),
    "early": lambda scores: _share(scores.early_coverage_frac),
}
