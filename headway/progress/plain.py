"""Words that many programs print: ``epoch 3``, ``step 100/1000``, ``iter 100: loss 2.3``.

nanoGPT, Megatron, detectron2, MMEngine, fairseq, MXNet, and the loops people
write themselves; and lines that count without such words. Read only as long as
no better format is found.
"""

import re
from collections.abc import Callable
from operator import itemgetter

from headway.progress.format import Reader
from headway.progress.layout import ByShape, Places, counts_by
from headway.progress.metrics import COUNT, STEP, Span, is_settings, pairs, step_of_run
from headway.progress.seen import Seen
from headway.progress.tables import Table

_EPOCH = re.compile(
    r"(?<![A-Za-z_])(?<!for 1 )[Ee](?:poch|POCH)s?\b(?:\.{3})?[\s:=#\[(|'\"]{0,12}" + COUNT
    + r"(?:(\.[0-9]{1,9})|\s{0,3}(?:/|of)\s{0,6}" + COUNT + r")?(?![0-9.]*[\w%])[\])]?"
    r"(?:[\s,:;|-]{0,6}[\[(]?\s{0,8}" + COUNT + r"\s{0,3}/\s{0,6}" + COUNT + ")?",
    re.ASCII,
)  # fmt: skip
# Lines that count without these words.
_spelled = counts_by(
    # ESPnet: "5epoch:train:3376-3750batch: …"; Marian: "Ep. 1 : Up. 1000 : Sen. …".
    r"(?<![0-9/])%epoch%epoch:train:(?:[0-9]{1,12}-)?%step%batch",
    r"\bEp\. %epoch% : Up\. %iteration%",
    # fastText says percents; Tacotron 2: "Train loss 7 5.79 Grad Norm …".
    r"^Progress: {1,4}%iteration%(?:\.[0-9]{1,2})?% {1,4}words/sec",
    r"^Train loss %iteration% [0-9.]{1,20} Grad Norm",
    # StyleGAN counts thousands of images.
    r"^tick [0-9]{1,9}\s{1,8}kimg %iteration%(?:\.[0-9])?\s",
    # Darknet, tf_cnn_benchmarks, llama2.c, tinygrad, nerfstudio begin with the count.
    (
        r"^\s{0,8}%iteration%(?:: -?[0-9.naf]{1,20}, -?[0-9.naf]{1,20} avg\b"
        r"|\s{1,12}images/sec: | \| loss [0-9n]| [0-9.]{1,12} s run, "
        r"| \([0-9.]{1,6}%\)\s{1,20}[0-9.]{1,12} m?s\b)"
    ),
    # Stable-Baselines, RLlib, tf2rl.
    (
        r"^[|\s]{0,12}(?:total_timesteps|training_iteration|iterations_since_restore)"
        r"(?:\s{1,20}\||:)\s{1,10}%iteration%\s{0,20}\|?\s{0,4}$"
    ),
    r"\bTotal Epi: {1,6}[0-9]{1,12} Steps: {1,8}%iteration%\b",
    # Lightning, of its checkpoints: its epochs are those of its bar.
    r"\bEpoch [0-9]{1,9}, global step %iteration%: '",
    # The Trainer's bar in a notebook.
    r"^\[ {0,4}%iteration%/%total% [0-9:]{1,12} < [0-9:?]{1,12}, .{0,40}Epoch %epoch_done%/",
    # What clu writes, chainer's bar, LLaMA-Factory's JSON, H2O's bar of percents.
    r"logging_writer\.py:[0-9]{1,5}\] \[%iteration%\] (?:steps_per_second|train|loss)",
    r"^\s{0,8}%iteration% iter, %epoch_done% epoch / [0-9]{1,9} epochs",
    r'"current_steps": %iteration%, "total_steps": %total%,',
    (
        r"^(?:AutoML|[\w ]{1,40} Model Build) progress: \|[^|]{0,200}\|\s{0,6}%iteration%"
        r"(?:\.[0-9])?%"
    ),
    # YOLO where its bar was cut off.
    r"^\s{1,12}%epoch%/%epochs%\s{2,12}[0-9.]{1,8}[GMK]\s",
)
_BATCH = re.compile(r"\b[Bb]atch\b[ :\[#]{0,4}[0-9]")
_TOTAL = re.compile(r"^(?:Training for|Num batches:)\s{1,4}" + COUNT)
_PERCENT = 100
# Thousands as people write them: step 1,000; not 10:00:01,123 and no lists.
_THOUSANDS = re.compile(r"(?<![0-9,.:\[(])[0-9]{1,3}(?:,[0-9]{3}){1,5}(?!,?[0-9])")
_BESIDE = re.compile(r"(?i)\b(?:val|valid|validation|test|testing|eval|evaluation|cv|dev)\b")
_NOWHERE = (-1, -1)


class Plain:
    """Reads a line by its words."""

    def __init__(self) -> None:
        self._words = ByShape(_places)
        self._table = Table()
        self._total: int | None = None
        self._batches = _Batches()
        self._bare_epoch = 0
        self.has_spoken = False

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        seen = self._words(line, shape)
        if seen is None:
            if line[0] in "TN" and (said := _TOTAL.match(line)):
                self._total = int(said[1])
            return self._table(line, shape)
        if seen.iteration is not None:
            if seen.total is None:
                total = _PERCENT if "rogress: " in line else self._total
                seen = seen._replace(total=total)
        elif seen.epoch is not None:
            self._batches.are_known = True
            if not (seen.metrics or seen.epochs) and seen.step is None:
                self.has_spoken |= seen.epoch == self._bare_epoch + 1
                self._bare_epoch = seen.epoch
        elif seen.steps is not None and not self._batches.are_known and _BATCH.search(line):
            seen = self._batches(seen)
        if seen.metrics or seen.steps or seen.epochs or seen.total:
            self.has_spoken = True
        return seen


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


def _places(line: str) -> Places | None:
    """What stands where in *line*; None when it counts nothing, or is about a validation."""
    edit: Callable[[str], str] | None = None
    if "(train)" in line:
        edit, line = _without_train, _without_train(line)
    if "," in line and _THOUSANDS.search(line):
        commas = _without_commas(line)
        edit = commas if edit is None else _both(_without_train, commas)
        line = commas(line)
    counts = _spelled(line) or _counts(line)
    if counts is None:
        return None
    # At the end of a line of numbers it is the epoch that runs, not one that has ended.
    runs = counts.get("step") == _NOWHERE and counts["epoch"][1] == len(line.rstrip())
    return Places(counts, () if runs else pairs(line), edit=edit)


def _without_train(line: str) -> str:
    """MMEngine: ``Epoch(train) [1][50/100]``, ``Iter(train) [50/100]``."""
    return line.replace("(train)", "").replace("][", "] [")


def _without_commas(line: str) -> Callable[[str], str]:
    """What takes the commas between thousands out of lines of this shape."""
    at = [
        place
        for match in _THOUSANDS.finditer(line)
        for place in range(*match.span())
        if line[place] == ","
    ]
    begins, ends = [0, *(comma + 1 for comma in at)], [*at, None]
    cut = itemgetter(*(slice(begin, end) for begin, end in zip(begins, ends, strict=True)))
    return lambda text: "".join(cut(text))


def _both(first: Callable[[str], str], then: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: then(first(text))


def _counts(line: str) -> dict[str, Span] | None:
    # fairseq's validation may come in the middle of an epoch.
    if is_settings(line) or "| valid on " in line:
        return None
    epoch = None if "micro_step" in line else _EPOCH.search(line)  # DeepSpeed's is always 0
    step = STEP.search(line, epoch.end() if epoch else 0)
    if epoch is not None and step is None:
        step = STEP.search(line, 0, epoch.start())
    found = [match for match in (epoch, step) if match is not None]
    # Several epochs that are no part of others are how many there will be.
    are_all = epoch is not None and not (epoch[2] or epoch[3]) and "pochs" in epoch[0]
    if not found or are_all or _BESIDE.search(line[: min(m.start() for m in found)][-60:]):
        return None
    done, steps = _NOWHERE, _NOWHERE
    if step is not None:
        done, steps = step.span(1), step.span(2)
    elif epoch is not None and epoch[4]:
        done, steps = epoch.span(4), epoch.span(5)
    if epoch is None:
        return {"step": done, "steps": steps}
    if of_run := step_of_run(line):
        return {"epoch": epoch.span(1), "epochs": epoch.span(3), "iteration": of_run}
    if epoch[2]:
        said = (epoch.start(1), epoch.end(2))  # epoch 1.25
        return {"iteration": done, "total": steps, "epoch_done": said}
    return {"epoch": epoch.span(1), "epochs": epoch.span(3), "step": done, "steps": steps}


def only_training(words: Plain) -> Reader:
    """As *words*, but a line needs a number or a fraction besides: "step 1: download" is none."""

    def read(line: str, shape: bytes) -> Seen | None:
        seen = words(line, shape)
        if seen is None or seen.metrics or seen.steps or seen.epochs or seen.iteration is not None:
            return seen
        begins = seen.epoch in {0, 1} and seen.step is None
        return seen if begins or words.has_spoken or not any(seen) else None

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
