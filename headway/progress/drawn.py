"""How one bar of tqdm or rich is drawn: what its line says, before it is known which bar it is."""

import re
from typing import NamedTuple

from headway.progress.metrics import counts_pattern, numbers_in, spans, step_of_run
from headway.progress.places import Places

# What is counted in thousands or millions (44.0M/97.8M) may be bytes, and is not read.
_BAR = counts_pattern(
    r"[0-9]{1,3}%(?:\|[^|]{0,400}\|)?\s{0,8}%step%/%steps%[^\[<\w]{0,12}"
    r"\[(?P<elapsed>[0-9:]{1,12})<(?P<remaining>[0-9:?]{1,12})"
    r"(?:,\s{0,4}[0-9.?]{1,12}\s?(?P<unit>[a-zA-Z/]{1,24}))?"
)
# rich: "Training ━━━━╸━━━  45% 0:00:03"; not pip's "━━━━ 45.0/97.8 MB".
_RICH = counts_pattern(
    r"[━╸╺]{3,200} {1,8}%step%"
    r"(?:/%steps%(?![0-9.]| ?(?:[kKMGTP]i?)?[Bb](?:ytes)?\b)|(?P<percent>%))"
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
_VALUE = re.compile(r"\w{1,40} ?[:=] ?[-+]?[0-9.]{1,20}(?:e[-+]?[0-9]{1,3})?")
"""A metric beside the bar: ``Test: 0.41`` is about no test."""
_BESIDE_UNITS = ("B/s", "examples/s")
"""Downloads, and data that is prepared."""
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
    is_percent: bool
    """Of 100 steps, which it does not say."""
    places: Places
    """Where it tells its counts, as steps, and the epoch and the metrics."""
    elapsed: slice
    remaining: slice

    def length_s(self, line: str) -> float:
        """Seconds from 0 to the total, as the bar says; 0 while it does not know."""
        elapsed, remaining = line[self.elapsed], line[self.remaining]
        return 0.0 if "?" in remaining else _clock_s(elapsed) + _clock_s(remaining)


def drawn(shape: str) -> Drawn | None:
    """How the bar on lines of this *shape* is drawn; None where there is none."""
    match = _BAR.search(shape) or _RICH.search(shape)
    if match is None:
        return None
    end = match.start()
    text = shape[max(end - _BEFORE, 0) : end].lstrip()
    begin, text = end - len(text), text.rstrip()
    end = begin + len(text)
    counts, numbers = spans(match), numbers_in(shape, match.end())
    elapsed, remaining = (counts.pop(name, slice(0)) for name in ("elapsed", "remaining"))
    unit, is_percent = counts.pop("unit", slice(0)), counts.pop("percent", None) is not None
    epoch = _YOLO.match(shape, begin, end) or _EPOCH.search(shape, begin, end)
    if epoch is not None:
        counts |= spans(epoch) | step_of_run(shape, begin, end)
        numbers = numbers_in(shape, epoch.end(), end) + numbers
    return Drawn(
        label=text.translate(_DIGITS),
        is_beside=is_beside(text) or shape[unit].endswith(_BESIDE_UNITS),
        names_epoch=epoch is not None,
        is_yolo=epoch is not None and epoch.re is _YOLO,
        is_percent=is_percent,
        places=Places(counts, numbers),
        elapsed=elapsed,
        remaining=remaining,
    )


def is_beside(text: str) -> bool:
    """Whether *text*, which stands before a bar, names work beside the training."""
    return _BESIDE.search(_VALUE.sub("", text[-_BEFORE:])) is not None


def _clock_s(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + (int(part) if part else 0)
    return seconds
