"""Logs as people pasted them into public threads, and what a person reads in them.

`tests/data/progress/threads.csv` names each excerpt, its thread and the truth: where the
run stands at the end. ``nothing`` (no progress is told), or fields with the values that are
right: ``iteration 260|261``, ``epoch 15..16``, ``total 800``; ``-`` for none, ``?`` for any;
a field that is left out must not be said. ``before 100`` is how far an earlier run in the same
log came; ``or`` stands between whole answers.
"""

import csv
import enum
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser

DATA = Path(__file__).parents[1] / "data" / "progress"
_NEAR = 1
"""Some print the iteration that is done, some the one that begins."""
_NEAR_EPOCH = 0.011


class Verdict(enum.Enum):
    """How the parser read an excerpt."""

    RIGHT = "right"
    WRONG = "wrong"
    """Something is said that is not so, at the end or anywhere before."""
    NOT_READ = "not read"
    """Something is missing that the log tells."""


class Thread(NamedTuple):
    """One excerpt."""

    name: str
    source: str
    """Repository and number of the thread."""
    part: str
    """``tuned`` on, ``held out`` until then, by the checksum of the name, or found ``later``."""
    truth: str

    @property
    def path(self) -> Path:
        """Where the excerpt is."""
        return DATA / "threads" / f"{self.name}.log"

    @property
    def log(self) -> bytes:
        """The excerpt."""
        return self.path.read_bytes()


def threads() -> list[Thread]:
    """All excerpts."""
    with (DATA / "threads.csv").open(newline="") as file:
        return [Thread(**row) for row in csv.DictReader(file)]


def points_of(log: bytes) -> list[ProgressPoint]:
    """What the parser reads in *log*."""
    parser = LogParser()
    return parser.feed(log, 0.0) + parser.finish(0.0)


def judge(truth: str, points: list[ProgressPoint]) -> Verdict:
    """Compare *points* with what a person reads."""
    verdicts = {_judge(answer.split(), points) for answer in truth.split(" or ")}
    order = (Verdict.RIGHT, Verdict.NOT_READ, Verdict.WRONG)
    return next(verdict for verdict in order if verdict in verdicts)


def _judge(answer: list[str], points: list[ProgressPoint]) -> Verdict:
    if answer == ["nothing"]:
        return Verdict.WRONG if points else Verdict.RIGHT
    if not points:
        return Verdict.NOT_READ
    truth = dict(zip(answer[::2], answer[1::2], strict=True))
    said = points[-1]._asdict()
    for name, near in (("iteration", _NEAR), ("epoch", _NEAR_EPOCH), ("total", 0.0)):
        right, value = truth.get(name, "-"), said[name]
        spans = list(_spans(right))
        if value is not None and right != "?":
            if not any(low - near <= value <= high + near for low, high in spans):
                return Verdict.WRONG
            highest = max(float(truth.get("before", 0)), *(high for _low, high in spans)) + near
            if name != "total" and any((getattr(p, name) or 0) > highest for p in points):
                return Verdict.WRONG
    lacks = [name for name in ("iteration", "total") if _must(truth, name) and said[name] is None]
    if "iteration" not in truth and said["epoch"] is None:
        lacks.append("epoch")
    return Verdict.NOT_READ if lacks else Verdict.RIGHT


def _must(truth: dict[str, str], name: str) -> bool:
    return not {"-", "?"} & set(truth.get(name, "-").split("|"))


def _spans(right: str) -> Iterator[tuple[float, float]]:
    for value in right.split("|"):
        if value not in {"-", "?"}:
            low, _, high = value.partition("..")
            yield float(low), float(high or low)
