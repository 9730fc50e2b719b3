"""Words that many programs print: ``epoch 3``, ``step 100/1000``, ``iter 100: loss 2.3``.

nanoGPT, Megatron, detectron2, MMEngine, fairseq, MXNet, and the loops people
write themselves; and lines that count without such words. Read only as long as
no better format is found.
"""

import re

from headway.progress.metrics import (
    STEP,
    counts_pattern,
    is_settings,
    numbers_in,
    spans,
    step_of_run,
)
from headway.progress.patterns import SPELLED
from headway.progress.places import Places, by_shape
from headway.progress.rows import PatternReader
from headway.progress.seen import Seen
from headway.progress.tables import Table

_EPOCH = counts_pattern(
    r"(?<![A-Za-z_])(?<!for 0 )[Ee](?:poch|POCH)s?\b(?:\.{3}|\(train\)|-)?[\s:=#\[(|'\"]{0,12}"
    r"%epoch%(?:(?P<part>\.[0-9]{1,9})|\s{0,3}(?:/|of)\s{0,6}%epochs%)?(?![0-9.]*[\w%])[\])]?"
    r"(?:[\s,:;|-]{0,6}[\[(]?\s{0,8}%step%\s{0,3}/\s{0,6}%steps%)?"
)
# Beside the step: step=10 total_steps=1000.
_TOTAL = counts_pattern(
    r"\b(?:total|max|num)_(?:train_)?(?:steps|iter(?:ation)?s)\s?[:=]\s?%total%"
)
_ENDED = re.compile(
    r"\b(?i:finished|completed) epoch [0-9]"
    r"|[Ee]poch[ #:=\[]{0,4}[0-9]{1,9}(?: ?(?:/|of) ?[0-9]{1,9})?\]?,? (?i:is |has |was )?"
    r"(?i:finished|completed|done|ended|took)\b"
)
_BATCH = re.compile(r"\b[Bb]atch\b[ :\[#]{0,4}[0-9]")
# Thousands as people write them: step 1,000; not 10:00:01,123 and no lists.
_THOUSANDS = re.compile(r"(?<![0-9,.:\[(])[0-9]{1,3}(?:,[0-9]{3}){1,5}(?!,?[0-9])")
_BESIDE = re.compile(r"(?i)\b(?:val|valid|validation|test|testing|eval|evaluation|cv|dev)\b")


class Words:
    """Reads a line by its words, or as a row of a table."""

    def __init__(self) -> None:
        self._spelled = PatternReader(SPELLED)
        self._commas = by_shape(thousands)
        self._find = by_shape(_places)
        self._table = Table()
        self._batches = _Batches()
        self._bare_epoch = 0
        self._has_spoken = False

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        seen = self._counted(line, shape)
        if seen is None:
            return self._table(line, shape)
        if seen.epoch is not None:
            self._batches.are_known = True
            if not (seen.metrics or seen.epochs) and seen.step is None:
                self._has_spoken |= seen.epoch == self._bare_epoch + 1
                self._bare_epoch = seen.epoch
        elif seen.steps is not None and not self._batches.are_known and _BATCH.search(line):
            seen = self._batches(seen)
        if seen.metrics or seen.steps or seen.epochs or seen.total:
            self._has_spoken = True
        ended = seen.epoch is not None and _ENDED.search(shape) is not None
        return seen._replace(has_ended=True) if ended else seen

    def _counted(self, line: str, shape: str) -> Seen | None:
        if commas := self._commas(shape):
            line, shape = without(line, commas), without(shape, commas)
        seen = self._spelled(line, shape)
        if seen is None and (places := self._find(shape)) is not None:
            return places.read(line)
        return seen

    def of_training(self, line: str, shape: str) -> Seen | None:
        """Read one line that has a number or a fraction besides: "step 1: download" has none."""
        seen = self(line, shape)
        if seen is None or seen.metrics or seen.steps or seen.epochs or seen.iteration is not None:
            return seen
        begins = seen.epoch in {0, 1} and seen.step is None
        return seen if begins or self._has_spoken or not any(seen) else None


class _Batches:
    """``Batch 4/203700``: the fourth of so many, or wenet's epoch 4, of which the batch is told."""

    def __init__(self) -> None:
        self.are_known = False
        """Whether the second number is how many there are."""
        self._name_epoch = False
        self._last: tuple[int | None, int | None] | None = None

    def __call__(self, seen: Seen) -> Seen:
        last, self._last = self._last, (seen.step, seen.steps)
        if last is not None and last != self._last:
            self.are_known = last[1] == seen.steps
            self._name_epoch = last[0] == seen.step
        if self.are_known:
            return seen
        if self._name_epoch:
            return Seen(seen.metrics, epoch=seen.step, step=seen.steps)
        return Seen({})


def thousands(shape: str) -> list[int]:
    """Where commas stand between thousands, the last one first."""
    numbers = _THOUSANDS.finditer(shape) if ",000" in shape else ()
    places = [at for match in numbers for at in range(*match.span()) if shape[at] == ","]
    return places[::-1]


def without(line: str, places: list[int]) -> str:
    """*line* without the characters at *places*, of which the last one is given first."""
    for at in places:
        line = line[:at] + line[at + 1 :]
    return line


def _places(line: str) -> Places | None:
    """What stands where in *line*; None when it counts nothing, or is about a validation."""
    # fairseq's validation may come in the middle of an epoch.
    if is_settings(line) or "| valid on " in line:
        return None
    epoch = None if "micro_step" in line else _EPOCH.search(line)  # DeepSpeed's is always 0
    step = STEP.search(line, epoch.end() if epoch else 0)
    if epoch is not None and step is None:
        step = STEP.search(line, 0, epoch.start())
    found = [match for match in (epoch, step) if match is not None]
    # Several epochs that are no part of others are how many there will be.
    are_all = epoch is not None and not (epoch["part"] or epoch["epochs"]) and "pochs" in epoch[0]
    if not found or are_all or _BESIDE.search(line[: min(m.start() for m in found)][-60:]):
        return None
    counts = {} if epoch is None else spans(epoch) | step_of_run(line)
    if step is not None:
        counts.pop("steps", None)
        counts |= spans(step)
        total = None if step["steps"] else _TOTAL.search(line)
        counts |= {} if total is None else spans(total)
    if part := counts.pop("part", None):
        counts["epoch_done"] = slice(counts.pop("epoch").start, part.stop)
    # At the end of a line of numbers it is the epoch that runs, not one that has ended.
    runs = counts.keys() == {"epoch"} and counts["epoch"].stop == len(line.rstrip())
    return Places(counts, () if runs else numbers_in(line))
