"""Words that many programs print: ``epoch 3``, ``step 100/1000``, ``iter 100: loss 2.3``.

nanoGPT, Megatron, detectron2, MMEngine, fairseq, MXNet, and the loops people
write themselves. Read only as long as no better format is found.
"""

import re
from collections.abc import Callable
from operator import itemgetter

from headway.progress.format import Reader
from headway.progress.layout import ByShape, Places
from headway.progress.metrics import COUNT, NUMBER, Span, pairs
from headway.progress.seen import Seen

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
_NOWHERE = (-1, -1)
_VALUE = re.compile(r"\S+")
_NUMBER = re.compile(NUMBER)
_ROW = re.compile(r"^" + COUNT + r"((?:\s{2,14}[-0-9.:enaf]{1,20}){1,20}+)\s{0,20}$")


class Plain:
    """Reads a line by its words."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._words = ByShape(_places)
        self._rows = ByShape(self._row_places)
        self.has_spoken = False

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        seen = self._words(line, shape)
        if seen is None:
            return self._row(line, shape)
        if seen.metrics or seen.steps or seen.epochs:
            self.has_spoken = True
        return seen

    def _row(self, line: str, shape: bytes) -> Seen | None:
        """A row of fastai's table: ``0         0.51        0.42        00:12``."""
        if line.startswith("epoch") and (match := _FASTAI.match(line)):
            self._rows.forget()
            self._columns = match[1].split()
            self.has_spoken = True
            return Seen({})
        return self._rows(line, shape) if self._columns else None

    def _row_places(self, line: str) -> Places | None:
        match = _ROW.match(line)
        if match is None:
            return None
        values = list(_VALUE.finditer(line, *match.span(2)))
        if len(values) != len(self._columns):
            return None
        columns = zip(self._columns, values, strict=True)
        numbers = [
            (column, *value.span())
            for column, value in columns
            if column != "time" and _NUMBER.fullmatch(value[0])
        ]
        return Places({"epoch": match.span(1)}, numbers)


def _has_thousands(line: str) -> bool:
    epoch = _EPOCH.search(line)
    step = _STEP.search(line, epoch.end() if epoch else 0)
    return step is not None and _THOUSANDS.match(line, step.end(1)) is not None


def _places(line: str) -> Places | None:
    """What stands where in *line*; None when it counts nothing, or is about a validation."""
    edit: Callable[[str], str] | None = None
    if "(train)" in line:
        edit, line = _without_train, _without_train(line)
    if _has_thousands(line):
        commas = _without_commas(line)
        edit = commas if edit is None else _both(_without_train, commas)
        line = commas(line)
    counts = _counts(line)
    return None if counts is None else Places(counts, pairs(line), edit=edit)


def _without_train(line: str) -> str:
    """MMEngine: ``Epoch(train) [1][50/100]``, ``Iter(train) [50/100]``."""
    return line.replace("(train)", "").replace("][", "] [")


def _without_commas(line: str) -> Callable[[str], str]:
    """What takes the commas between thousands out of lines of this shape."""
    at = [match.start() for match in _THOUSANDS.finditer(line)]
    begins, ends = [0, *(comma + 1 for comma in at)], [*at, None]
    cut = itemgetter(*(slice(begin, end) for begin, end in zip(begins, ends, strict=True)))
    return lambda text: "".join(cut(text))


def _both(first: Callable[[str], str], then: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: then(first(text))


def _counts(line: str) -> dict[str, Span] | None:
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
        return {"step": done, "steps": steps}
    if epoch[2]:
        said = (epoch.start(1), epoch.end(2))  # epoch 1.25
        return {"iteration": done, "total": steps, "epoch_done": said}
    return {"epoch": epoch.span(1), "epochs": epoch.span(3), "step": done, "steps": steps}


def only_training(words: Plain) -> Reader:
    """As *words*, but a line needs a number or a fraction besides: "step 1: download" is none."""

    def read(line: str, shape: bytes) -> Seen | None:
        seen = words(line, shape)
        if seen is None or seen.metrics or seen.steps or seen.epochs:
            return seen
        return seen if words.has_spoken or not any(seen) else None

    return read


class BarsAndWords:
    """Bars, and between them the words that tell which epoch they are about."""

    def __init__(self, bars: Reader, words: Plain) -> None:
        self._bars = bars
        self._words = words

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        seen = self._bars(line, shape)
        if seen is not None or "poch" not in line or "%|" in line:
            return seen
        said = self._words(line, shape)
        if said is None or said.epoch is None:
            return None
        return said._replace(step=None, steps=None)
