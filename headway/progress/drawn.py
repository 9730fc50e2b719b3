"""How one bar of tqdm is drawn: what its line says, before it is known which bar it is."""

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from headway.progress.layout import Layout, Places
from headway.progress.metrics import COUNT, Span, numbers_in, step_of_run

_BAR = re.compile(
    r"([0-9]{1,3})%(?:\|[^|]{0,400}\|)?\s{0,8}([0-9.]{1,20})([kMGT]?)/([0-9.]{1,20})([kMGT]?)"
    r"[^\[<]{0,12}\[([0-9:]{1,12})<([0-9:?]{1,12})(?:,\s{0,4}([0-9.?]{1,12}\s?[a-zA-Z/]{1,24}))?"
)
_EPOCH = re.compile(
    r"(?i)\bep(?:och)?s?\b[\s:=#\[(]{0,6}" + COUNT + r"(?:\s{0,3}(?:/|of)\s{0,3}" + COUNT + ")?"
)
# YOLO: "  1/100  2.5G  1.2 …"; torchtune: "1|25|Loss: 1.2".
_YOLO = re.compile(
    r"^" + COUNT + r"(?:/" + COUNT + r"\s{2,12}[0-9.]{1,8}[GMK]|\|[0-9]{1,12}\|Loss)"
)
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
_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_BEFORE = 200
"""So much before a bar says what it is about."""


class NoBar(enum.Enum):
    """Why a line is read no further as a bar."""

    NONE = "none"
    """There is no bar on it."""
    BESIDE = "beside"
    """The bar is about work beside the training."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A bar, as it is drawn in lines of one shape."""

    layout: Layout
    """What it counts, as steps; the epoch where its text names one; and the metrics."""
    label: str
    """What stands before the bar, without digits."""
    has_text: bool
    names_epoch: bool
    is_yolo: bool
    """The epoch is written as YOLO does: the last one is named, and may be counted from 0."""
    scales: tuple[int, int] | None
    """What 1.2k/3.4M stand for, in ones; None where the layout holds whole numbers."""
    _counts: Callable[[str], tuple[str, ...]]
    _times: Callable[[str], tuple[str, ...]]

    def scaled(self, line: str) -> tuple[int, int] | None:
        """Done and total of *line* where they are no whole numbers; None for forged ones."""
        done, total = self._counts(line)
        scales = self.scales or (1, 1)
        try:
            return int(float(done) * scales[0]), int(float(total) * scales[1])
        except ValueError:
            return None

    def length_s(self, line: str) -> float:
        """Seconds from 0 to the total, as the bar says; 0 while it does not know."""
        elapsed, remaining = self._times(line)
        return 0.0 if "?" in remaining else _clock_s(elapsed) + _clock_s(remaining)


def drawn(line: str) -> Drawn | NoBar:
    """How the bar on *line*, and on lines with other digits, is drawn."""
    match = _BAR.search(line)
    if match is None:
        return NoBar.NONE
    begin = max(match.start() - _BEFORE, 0)
    before = line[begin : match.start()]
    begin += len(before) - len(before.lstrip())
    text = before.strip()
    is_whole = not match[3] and not match[5] and match[2].isdigit() and match[4].isdigit()
    rate = match[8] or ""
    if is_beside(text) or rate.endswith(_BESIDE_UNITS) or not (is_whole or _UNIT.search(rate)):
        return NoBar.BESIDE
    counts: dict[str, Span] = {}
    if is_whole:
        counts = {"step": match.span(2), "steps": match.span(4)}
    numbers = numbers_in(line, match.end())
    epoch = _YOLO.search(text) or _EPOCH.search(text)
    if epoch is not None:
        for group, name in enumerate(("epoch", "epochs"), 1):
            if epoch[group]:
                counts[name] = (begin + epoch.start(group), begin + epoch.end(group))
        if of_run := step_of_run(text):
            counts["iteration"] = (begin + of_run[0], begin + of_run[1])
        numbers += numbers_in(line, begin + epoch.end(), begin + len(text))
    return Drawn(
        layout=Layout(line, Places(counts, numbers)),
        label=text.translate(_DIGITS),
        has_text=bool(text),
        names_epoch=epoch is not None,
        is_yolo=epoch is not None and epoch.re is _YOLO,
        scales=None if is_whole else (_SCALE[match[3]], _SCALE[match[5]]),
        _counts=itemgetter(slice(*match.span(2)), slice(*match.span(4))),
        _times=itemgetter(slice(*match.span(6)), slice(*match.span(7))),
    )


def is_beside(text: str) -> bool:
    """Whether *text*, which stands before a bar, names work beside the training."""
    return _BESIDE.search(text[-_BEFORE:]) is not None


@lru_cache(maxsize=4096)
def _clock_s(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + (int(part) if part else 0)
    return seconds
