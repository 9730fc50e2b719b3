"""Words that many programs print: ``epoch 3``, ``step 100/1000``, ``iter 100: loss 2.3``.

nanoGPT, Megatron, detectron2, MMEngine, fairseq, MXNet, and the loops people
write themselves. Read only as long as no better format is found.
"""

import re

from headway.progress.format import Reader
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


class Plain:
    """Reads a line by its words."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self.has_spoken = False

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        if "(train)" in line:  # MMEngine: Epoch(train) [1][50/100], Iter(train) [50/100]
            line = line.replace("(train)", "").replace("][", "] [")
        epoch = _EPOCH.search(line)
        step = _STEP.search(line, epoch.end() if epoch else 0)
        if epoch is None and step is None:
            return self._row(line)
        if step is not None and _THOUSANDS.match(line, step.end(1)):
            return self(_THOUSANDS.sub("", line))
        if epoch is not None and step is None:
            step = _STEP.search(line, 0, epoch.start())
        seen = self._words(line, epoch, step)
        if seen is not None and (seen.metrics or seen.steps or seen.epochs):
            self.has_spoken = True
        return seen

    def _words(
        self, line: str, epoch: re.Match[str] | None, step: re.Match[str] | None
    ) -> Seen | None:
        first = min(match.start() for match in (epoch, step) if match is not None)
        done, steps = None, None
        if step is not None:
            done, steps = int(step[1]), int(step[2]) if step[2] else None
        elif epoch is not None and epoch[4]:
            done, steps = int(epoch[4]), int(epoch[5])
        if done is not None and _BESIDE.search(line[:first][-60:]):
            return None  # a step of the validation
        metrics = metrics_in(line)
        if epoch is None:
            return Seen(metrics, step=done, steps=steps)
        if epoch[2]:
            return Seen(metrics, iteration=done, total=steps, epoch_done=float(epoch[1] + epoch[2]))
        epochs = int(epoch[3]) if epoch[3] else None
        return Seen(metrics, epoch=int(epoch[1]), epochs=epochs, step=done, steps=steps)

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
