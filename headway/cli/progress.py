"""Commands about progress: what a log says."""

import json
import math
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from headway.cli.inputs import A_FILE, name_of
from headway.cli.output import Columns, Json, as_json, print_rows, say
from headway.errors import shown
from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser
from headway.units import format_duration

_CHUNK_BYTES = 1 << 20
_SHOWN_POINTS = 20
"""So many of the newest points are printed for people."""


@click.group()
def progress() -> None:
    """Test what headway reads from a training log."""


@progress.command()
@click.argument("logfile", type=A_FILE)
@click.option("--pattern", metavar="RE2", help="The job's own regular expression.")
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs there are, as in the job.")
@as_json
def parse(logfile: BinaryIO, pattern: str | None, epochs: int | None, machine: bool) -> None:
    """Show the format found in LOGFILE and the points in it.

    The file is read in pieces, so any size will do. A log without progress has the format null and
    no points; that is not an error.

    Examples:
      headway progress parse train.log
      headway progress parse train.log --pattern 'step (?P<step>[0-9]+)'
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
