"""How one bar of tqdm is drawn: what its line says, before it is known which bar it is."""

import re
from typing import NamedTuple

from headway.progress.metrics import counts_pattern, numbers_in, spans, step_of_run
from headway.progress.places import Places
from headway.progress.seen import Seen

_BAR = re.compile(
    r"[0-9]{1,3}%(?:\|[^|]{0,400}\|)?\s{0,8}"
    r"(?P<done>[0-9.]{1,20})(?P<done_in>[kMGT]?)/(?P<total>[0-9.]{1,20})(?P<total_in>[kMGT]?)"
    r"[^\[<]{0,12}\[(?P<elapsed>[0-9:]{1,12})<(?P<remaining>[0-9:?]{1,12})"
    r"(?:,\s{0,4}(?P<rate>[0-9.?]{1,12}\s?[a-zA-Z/]{1,24}))?"
)
_EPOCH = counts_pattern(
    r"(?i:\bep(?:och)?s?\b)[\s:=#\[(]{0,6}%epoch%(?:\s{0,3}(?:/|of)\s{0,3}%epochs%)?"
)
# YOLO: "  1/100  2.5G  1.2 …"; torchtune: "1|25|Loss: 1.2".
_YOLO = counts_pattern(r"%epoch%(?:/%epochs%\s{2,12}[0-9.]{1,8}[GMK]|\|[0-9]{1,12}\|Loss)")
# Words that name work beside the training.
_BESIDE = re.compile(
    r"(?i)valid|\bval\b|eval|\btest|predict|infer|sanity|download|map\b|map \(|filter|token|loading"
    r"|fetch|generat|extract|unzip|resolv|cach|scanning|plotting|saving|collect|preproc|running"
    r"|shards|embed|warm ?up|class\b|build|fusing"
)
_BESIDE_UNITS = ("B/s", "examples/s")
"""Downloads, and data that is prepared."""
_UNIT = re.compile(r"[a-z]{2,12}/s$|s/[a-z]{2,12}$")
"""What is counted in thousands or millions must be named: 97.8M may be bytes."""
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_DIGITS = str.maketrans("", "", "0123456789")
_BEFORE = 200
"""So much before a bar says what it is about."""


class Drawn(NamedTuple):
    """A bar, as it is drawn in lines of one shape."""

    label: str
    """What stands before the bar, without digits."""
    is_beside: bool
    """It is about work beside the training."""
    names_epoch: bool
    is_yolo: bool
    """The epoch is written as YOLO does: the last one is named, and may be counted from 0."""
    scales: tuple[int, int]
    """What its counts are multiplied with: 1.2k stands for 1,200."""
    parts: dict[str, slice]
    """Where its counts and times stand."""
    places: Places
    """Where its text tells an epoch, and the metrics."""

    def read(self, line: str) -> Seen:
        """What *line* tells; the counts of the bar as steps, which are None for forged ones."""
        seen = self.places.read(line)
        try:
            done = int(float(line[self.parts["done"]]) * self.scales[0])
            total = int(float(line[self.parts["total"]]) * self.scales[1])
        except ValueError:
            return seen
        return seen._replace(step=done, steps=total)

    def length_s(self, line: str) -> float:
        """Seconds from 0 to the total, as the bar says; 0 while it does not know."""
        remaining = line[self.parts["remaining"]]
        if "?" in remaining:
            return 0.0
        return _clock_s(line[self.parts["elapsed"]]) + _clock_s(remaining)


def drawn(shape: str) -> Drawn | None:
    """How the bar on lines of this *shape* is drawn; None where there is none."""
    match = _BAR.search(shape)
    if match is None:
        return None
    end = match.start()
    text = shape[max(end - _BEFORE, 0) : end].lstrip()
    begin, text = end - len(text), text.rstrip()
    end = begin + len(text)
    rate = match["rate"] or ""
    is_whole = not match["done_in"] and not match["total_in"] and "." not in match[0].split("[")[0]
    epoch = _YOLO.match(shape, begin, end) or _EPOCH.search(shape, begin, end)
    counts, numbers = {}, numbers_in(shape, match.end())
    if epoch is not None:
        counts = spans(epoch) | step_of_run(shape, begin, end)
        numbers = numbers_in(shape, epoch.end(), end) + numbers
    return Drawn(
        label=text.translate(_DIGITS),
        is_beside=is_beside(text)
        or rate.endswith(_BESIDE_UNITS)
        or not (is_whole or _UNIT.search(rate)),
        names_epoch=epoch is not None,
        is_yolo=epoch is not None and epoch.re is _YOLO,
        scales=(_SCALE[match["done_in"]], _SCALE[match["total_in"]]),
        parts=spans(match),
        places=Places(counts, numbers),
    )


def is_beside(text: str) -> bool:
    """Whether *text*, which stands before a bar, names work beside the training."""
    return _BESIDE.search(text[-_BEFORE:]) is not None


def _clock_s(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + (int(part) if part else 0)
    return seconds
