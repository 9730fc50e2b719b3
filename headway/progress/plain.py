"""Words that many programs print: ``epoch 3``, ``step 100/1000``, ``iter 100: loss 2.3``.

nanoGPT, Megatron, detectron2, MMEngine, fairseq, MXNet, and the loops people
write themselves. Read only as long as no better format is found.
"""

import re
from typing import NamedTuple

from headway.progress.format import Reader
from headway.progress.metrics import MAX_SHAPE_CHARS, MAX_SHAPES, shape_of
from headway.progress.seen import COUNT, Seen, metrics_in

_EPOCH = re.compile(
    r"(?<![A-Za-z_])(?<!for 1 )[Ee](?:poch|POCH)s?\b[\s:=#\[(|'\"]{0,6}" + COUNT
    + r"(?:(\.[0-9]{1,9})|\s{0,3}(?:/|of)\s{0,6}" + COUNT + r")?(?![0-9.]*[\w%])[\])]?"
    r"(?:[\s,:;|-]{0,6}[\[(]?\s{0,8}" + COUNT + r"\s{0,3}/\s{0,6}" + COUNT + ")?",
    re.ASCII,
)  # fmt: skip
_STEP = re.compile(
    r"(?<![A-Za-z_])(?:[Gg]lobal[_ ]?[Ss]tep|[Ss]tep|STEP|[Ii]ter(?:ation)?|ITER"
    r"|[Uu]pdate|[Bb]atch(?:_idx)?|[Rr]ound)\b[\s:=#\[(|'\"]{0,14}(?:[0-9]{1,12}-)?" + COUNT
    + r"(?:\s{0,3}(?:/|of)\s{0,8}" + COUNT + r")?(?!\.?[0-9]|[\w%])",
    re.ASCII,
)  # fmt: skip
# Thousands as people write them: step 1,000.
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_BESIDE = re.compile(r"(?i)\b(?:val|valid|validation|test|testing|eval|evaluation)\b")
_FASTAI = re.compile(r"^epoch((?:\s{2,12}[a-z_0-9]{2,40}){1,20}+)\s{0,20}$")
_ROW = re.compile(r"^" + COUNT + r"((?:\s{2,14}[-0-9.:enaf]{1,20}){1,20}+)\s{0,20}$")


Span = tuple[int, int]
_NOWHERE = (-1, -1)


class _Plan(NamedTuple):
    """Where the counts stand in lines of one shape; `_NOWHERE` for those that are not said."""

    epoch: Span
    fraction: Span
    epochs: Span
    step: Span
    steps: Span


class Plain:
    """Reads a line by its words.

    Where its counts stand is looked for once for lines that differ only in
    their digits, as `MetricReader` does for metrics.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._plans: dict[bytes, _Plan | None] = {}
        self.has_spoken = False

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        if "(train)" in line:  # MMEngine: Epoch(train) [1][50/100], Iter(train) [50/100]
            line = line.replace("(train)", "").replace("][", "] [")
        shape = shape_of(line)
        plan = self._plans.get(shape, _UNKNOWN)
        if plan is _UNKNOWN:
            plan = _COMMAS if _has_thousands(line) else _plan(line)
            if len(line) <= MAX_SHAPE_CHARS:
                if len(self._plans) >= MAX_SHAPES:
                    self._plans.clear()
                self._plans[shape] = plan
        if plan is _COMMAS:
            line = _THOUSANDS.sub("", line)
            plan = _plan(line)
        if plan is None:
            return self._row(line)
        seen = _seen(line, plan)
        if seen.metrics or seen.steps or seen.epochs:
            self.has_spoken = True
        return seen

    def _row(self, line: str) -> Seen | None:
        """A row of fastai's table: ``0         0.51        0.42        00:12``."""
        if line.startswith("epoch") and (match := _FASTAI.match(line)):
            self._columns = match[1].split()
            self.has_spoken = True
            return Seen({})
        if self._columns and (match := _ROW.match(line)):
            values = match[2].split()
            if len(values) == len(self._columns):
                pairs = zip(self._columns, values, strict=True)
                numbers = " ".join(f"{name}={value}" for name, value in pairs if name != "time")
                return Seen(metrics_in(numbers), epoch=int(match[1]))
        return None


_UNKNOWN = _Plan(_NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE)
_COMMAS = _UNKNOWN._replace(epoch=(-2, -2))
"""A count of steps is written as 1,000: its places move when the comma is taken out."""


def _has_thousands(line: str) -> bool:
    epoch = _EPOCH.search(line)
    step = _STEP.search(line, epoch.end() if epoch else 0)
    return step is not None and _THOUSANDS.match(line, step.end(1)) is not None


def _plan(line: str) -> _Plan | None:
    """Where the counts of *line* stand; None when it has none, or is about a validation."""
    if "| valid on " in line:  # fairseq, also in the middle of an epoch
        return None
    epoch = None if "micro_step" in line else _EPOCH.search(line)  # DeepSpeed's is always 0
    step = _STEP.search(line, epoch.end() if epoch else 0)
    if epoch is None and step is None:
        return None
    if epoch is not None and step is None:
        step = _STEP.search(line, 0, epoch.start())
    done, steps = _NOWHERE, _NOWHERE
    if step is not None:
        done, steps = step.span(1), step.span(2)
    elif epoch is not None and epoch[4]:
        done, steps = epoch.span(4), epoch.span(5)
    first = min(match.start() for match in (epoch, step) if match is not None)
    if done is not _NOWHERE and _BESIDE.search(line[:first][-60:]):
        return None  # a step of the validation
    if epoch is None:
        return _Plan(_NOWHERE, _NOWHERE, _NOWHERE, done, steps)
    return _Plan(epoch.span(1), epoch.span(2), epoch.span(3), done, steps)


def _seen(line: str, plan: _Plan) -> Seen:
    metrics = metrics_in(line)
    done, steps = _count(line, plan.step), _count(line, plan.steps)
    epoch = _count(line, plan.epoch)
    if epoch is None:
        return Seen(metrics, step=done, steps=steps)
    if plan.fraction != _NOWHERE:
        said = float(line[plan.epoch[0] : plan.fraction[1]])
        return Seen(metrics, iteration=done, total=steps, epoch_done=said)
    epochs = _count(line, plan.epochs)
    return Seen(metrics, epoch=epoch, epochs=epochs, step=done, steps=steps)


def _count(line: str, span: Span) -> int | None:
    return None if span[0] < 0 else int(line[span[0] : span[1]])


def only_training(words: Plain) -> Reader:
    """As *words*, but a line needs a number or a fraction besides: "step 1: download" is none."""

    def read(line: str) -> Seen | None:
        seen = words(line)
        if seen is None or not any(seen) or seen.metrics or seen.steps or seen.epochs:
            return seen
        return seen if words.has_spoken else None

    return read


class BarsAndWords:
    """Bars, and between them the words that tell which epoch they are about."""

    def __init__(self, bars: Reader, words: Plain) -> None:
        self._bars = bars
        self._words = words

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        seen = self._bars(line)
        if seen is not None or "poch" not in line or "%|" in line:
            return seen
        said = self._words(line)
        if said is None or said.epoch is None:
            return None
        return said._replace(step=None, steps=None)
