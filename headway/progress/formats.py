"""The formats headway knows."""

from enum import IntEnum
from typing import NamedTuple

from headway.progress import patterns
from headway.progress.bars import Bars
from headway.progress.counting import Counts
from headway.progress.frameworks import BarsAndWords, HuggingFace, Keras, Lightning, ScikitLearn
from headway.progress.places import Reader
from headway.progress.protocol import read_headway
from headway.progress.rows import PatternReader
from headway.progress.words import Words


class Certainty(IntEnum):
    """How much a line that a format can read says about the format."""

    BARE = 0
    """A number that rises, and nothing that names what it counts."""
    LOOSE = 1
    """Many programs print such words: anything better replaces it."""
    BAR = 2
    """A progress bar, which many frameworks draw."""
    SURE = 3
    """Only this framework prints such lines."""
    PROTOCOL = 4
    """Said to headway on purpose."""


class Format(NamedTuple):
    """One log format, with a reader for one log."""

    name: str
    read: Reader
    certainty: Certainty = Certainty.SURE
    keeps_count: bool = False
    """Bars and words count alike: what was counted before this format was found still holds."""
    counts: Counts = Counts.STEPS


def known_formats() -> tuple[Format, ...]:
    """All formats with fresh readers, the surest first; the first that can read a line wins."""
    words = Words()
    bars = BarsAndWords(Bars(), words)
    rounds = Counts.ROUNDS
    return (
        Format("headway", read_headway, Certainty.PROTOCOL),
        Format("dllogger", PatternReader(patterns.DLLOGGER)),
        Format("huggingface", HuggingFace(bars), keeps_count=True),
        Format("lightning", Lightning(bars), keeps_count=True),
        Format("keras", Keras(), counts=Counts.STEPS_OF_EPOCH),
        Format("pytorch", PatternReader(patterns.PYTORCH), counts=Counts.STEPS_OF_EPOCH),
        Format("tensorflow", PatternReader(patterns.TENSORFLOW)),
        Format("caffe", PatternReader(patterns.CAFFE)),
        Format("xgboost", PatternReader(patterns.XGBOOST), counts=rounds),
        Format("lightgbm", PatternReader(patterns.LIGHTGBM), counts=rounds),
        Format("catboost", PatternReader(patterns.CATBOOST), counts=rounds),
        Format("sklearn", ScikitLearn(), counts=rounds),
        Format("tqdm", bars, Certainty.BAR, keeps_count=True),
        Format("plain", words.of_training, Certainty.LOOSE),
        Format("bare", PatternReader(patterns.BARE), Certainty.BARE),
    )
