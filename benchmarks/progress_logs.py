"""Long logs made from the short ones of tests/data/progress, moving on as a real run does.

A line of a fixture in which a count is found is printed again and again: its step
and epoch rise (an epoch has a few hundred lines, or as many as its bar says), and
every decimal number becomes another one of a similar size, so that lines differ in
their digits and in how many there are. The other lines of the fixture come once: in
the beginning, or after each epoch. Nearly every line is news, as in a bar's log.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

PER_EPOCH = 500
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n]+|$)")
_DECIMAL = re.compile(r"(?<![0-9.:])[0-9]{1,9}\.[0-9]{1,18}(?![0-9.:])")
# What rises in a line; the first that is found counts.
_COUNTS = tuple(
    re.compile(
        pattern.replace("EPOCH", r"(?P<epoch>\d+)")
        .replace("STEPS", r"(?P<steps>\d+(?:,\d+)*)")
        .replace("STEP", r"(?P<step>\d+)")
    )
    for pattern in (
        r'"iteration": STEP, "total": STEPS',
        r'"step": \[EPOCH, STEP\]',
        r"'epoch': '?(?P<share>[\d.]+)'?(?:, 'step': STEP)?",
        r'"epoch": EPOCH',
        r"Epoch: EPOCH Iteration: STEP",
        r"[Ee]poch EPOCH:.*?\| *STEP/STEPS \[",
        r"Epoch EPOCH: +\d+% STEP/STEPS \[",
        r"^ +EPOCH/\d+ .*\| STEP/STEPS \[",
        r"Epochs:.*\| EPOCH/(?P<epochs>\d+) \[",
        r"\| *STEP/STEPS \[\d",
        r"^(?:trainer-1  \| |\W*?\x1b\[1m)? *STEP/STEPS(?:\x1b\[0m)? [-\[\x1b]",
        r"[Ee]poch(?:\(train\) )?:? ?\[EPOCH\] *(?:Batch )?\[ *STEP(?:/ *STEPS)?\]",
        r"Train(?: Epoch)?: +EPOCH(?:/\d+ \( *\d+%\))? \[ *STEP/STEPS ",
        r"[Ee]poch[: \[]+EPOCH\b.{0,24}?(?:[Ss]tep|[Bb]atch(?:_idx)?|iter)[: \[]+STEP(?:/ *STEPS)?",
        r"epoch +EPOCH(?::| \|) +STEP ?/ *STEPS",
        r"epoch: \[EPOCH/\d+\], global_step: STEP",
        r"^\| end of epoch +EPOCH",
        r"(?:^|\s)[Ee]poch:? ?0*EPOCH\b",
        r"step: (?P<step>\d+,\d+) / STEPS",
        r"\b(?:[Ss]tep|Iter(?:ation)?|iter|iteration)(?::| =)? *STEP(?:/ *STEPS)?",
        r"^\[STEP\]\t",
        r"^(?:trainer-1  \| )?STEP:\t",
        r"^\[STEP/STEPS\] (?:1 tree|loss)",
        r"building tree STEP of STEPS",
        r"Done +STEP tasks",
        r"^ {6,12}STEP {5,}\d",
        r"^EPOCH {6,}",
        r"step=STEP",
        r"^\[EPOCH/\d+\]\[STEP/STEPS\]\t",
        r"\bTrial STEP finished",
        r"^Episode STEP\t",
        r"━[^%]{0,40}\b(?P<share>\d{1,3})%",
        r"^ +STEP {4}",
        r"^[\d.]+ [\d.]+ +STEP ",
    )
)
_BAR = re.compile(r"%\||\[[=>.]|\x1b")
# Validations, downloads and settings have counts too, which are none of the training's.
_BESIDE = re.compile(
    r"^\W*(?:[Vv]alid|Test|Sanity|Download|Map|Class )|\(val\)|Testing net|Validation Iter"
    r"|valid on|PARAMETER|restored|Checkpoint"
)


class _Line(NamedTuple):
    """A line of a fixture and what rises in it."""

    text: str
    counts: re.Match[str] | None


def moving(log: bytes, lines: int, rng: random.Random) -> bytes:
    """About *lines* lines like those of the fixture *log*."""
    printed = [_line(text) for text in _LINE.findall(log.decode()) if text]
    has_steps = any(_rises(line, "step", "share") for line in printed)
    rises = ("step", "share") if has_steps else ("epoch",)
    steady = [line for line in printed if _rises(line, *rises)]
    # A bar of another length is that of a validation.
    length = Counter(map(_steps, steady)).most_common(1)[0][0]
    steady = [line for line in steady if _steps(line) == length]
    first = printed.index(steady[0])
    # What names an epoch before its first step comes again with each epoch.
    heading = [line for line in printed[:first] if _rises(line, "epoch")][-1:]
    head = [line for line in printed[:first] if line not in heading]
    beside = [line for line in printed[first:] if line not in steady and line.text.strip()]
    if heading:
        beside = [line for line in beside if not _rises(line, "epoch")]
    beside = list({re.sub(r"[0-9.]+", "0", line.text): line for line in beside}.values())
    per_epoch = min(PER_EPOCH, length or PER_EPOCH) if has_steps else 1
    out = [line.text for line in head]
    epoch = 0
    while len(out) < lines:
        epoch += 1
        out += [_moved(line, epoch, 1, 1, rng) for line in heading]
        for i in range(per_epoch):
            line = steady[(len(out) + i) % len(steady)]
            out.append(_moved(line, epoch, i + 1, per_epoch, rng))
        out += [_moved(line, epoch, 1, 1, rng) for line in beside]
    return "".join(out).encode()


def _line(text: str) -> _Line:
    if _BESIDE.search(text[:120]):
        return _Line(text, None)
    return _Line(text, next(filter(None, (each.search(text) for each in _COUNTS)), None))


def _rises(line: _Line, *names: str) -> bool:
    return line.counts is not None and any(line.counts.groupdict().get(name) for name in names)


def _steps(line: _Line) -> int:
    """Steps in an epoch as *line* says; 0 when it does not."""
    said = {} if line.counts is None else line.counts.groupdict()
    return int((said.get("steps") or "0").replace(",", ""))


def _moved(line: _Line, epoch: int, i: int, of: int, rng: random.Random) -> str:
    """*line* as it is printed the *i*-th time of *of* in *epoch*."""
    at, out = 0, []
    for begin, end, number in sorted(_new_counts(line, epoch, i, of)):
        out += [_other_decimals(line.text[at:begin], rng), number]
        at = end
    return "".join([*out, _other_decimals(line.text[at:], rng)])


def _new_counts(line: _Line, epoch: int, i: int, of: int) -> Iterator[tuple[int, int, str]]:
    """Where the counts of *line* begin and end, and what stands there now."""
    said = {} if line.counts is None else line.counts.groupdict()
    if line.counts is None:
        return
    steps = _steps(line)
    # Without an epoch the steps run on; a bar, and steps of an epoch, begin anew.
    runs_on = not said.get("epoch") and _BAR.search(line.text) is None
    for name, old in said.items():
        if old is None:
            continue
        begin, end = line.counts.span(name)
        if name == "epoch":
            new = str(epoch)
        elif name == "share":  # epochs done in all
            new = repr(round(epoch - 1 + i / of, 4))
        elif name == "step":
            step = (epoch - 1) * of + i if runs_on else max(i * (steps or of) // of, 1)
            new = f"{step:,}" if "," in old else str(step)
        elif name == "epochs":
            new = "999999"
        else:
            new = old if not runs_on else "999,999,999" if "," in old else "999999999"
        while line.text[max(begin - 2, 0) : begin] == "  " and len(new) > end - begin:
            begin -= 1  # padded on the left
        is_padded = line.text[max(begin - 2, 0) : begin] == "  "
        yield begin, end, new.rjust(end - begin if is_padded else 0)


def _other_decimals(text: str, rng: random.Random) -> str:
    """Each decimal number of *text* as another one of 0.7 to 1.4 times its size."""

    def other(match: re.Match[str]) -> str:
        value = float(match[0]) * 2 ** rng.uniform(-0.5, 0.5)
        places = len(match[0]) - match[0].index(".") - 1
        # Python prints a float as short as it can.
        return repr(value) if places > 8 else f"{value:.{places}f}"

    return _DECIMAL.sub(other, text)
