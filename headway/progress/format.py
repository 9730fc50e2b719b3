"""What a format is: how it is recognised and how one of its lines is read."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from headway.progress.counting import Counts
from headway.progress.seen import Seen

Reader = Callable[[str, bytes], Seen | None]
"""Reads one line, of which the second says what it shares with lines of other digits (see
`layout.shape_of`); may remember what it needs for the next; never raises.

An empty `Seen` means: a line of this format, which tells no progress."""


class Certainty(IntEnum):
    """How much a line that a format can read says about the format."""

    LOOSE = 0
    """Many programs print such words: anything better replaces it."""
    BAR = 1
    """A progress bar, which many frameworks draw."""
    SURE = 2
    """Only this framework prints such lines."""
    PROTOCOL = 3
    """Said to headway on purpose."""


@dataclass(frozen=True, slots=True)
class Format:
    """One log format, with a reader for one log."""

    name: str
    certainty: Certainty
    hints: tuple[str, ...]
    """A line that tells this format from others contains one of these."""
    read: Reader
    keeps_count: bool = False
    """Bars and words count alike: what was counted before this format was found still holds."""
    counts: Counts = Counts.STEPS
    steps_are_of_epoch: bool = False
    """Whether ``step 3/100`` surely is one of an epoch, not of the run."""
