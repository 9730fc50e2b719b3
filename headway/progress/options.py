"""How many epochs or iterations there will be, or at most, as the options of a command say it."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headway.estimate.options import EPOCHS, ITERATIONS, last_part, options_of
from headway.progress.seen import MAX_COUNT

_NUMBER = re.compile(r"[0-9][0-9_]{0,15}(?:\.0{1,3})?(?:[eE]\+?[0-9]{1,2})?")
_MOST_CHARS = 10_000
# --patience 5, early_stopping_rounds=10, "EarlyStopping counter: 1 out of 5"; LightGBM, XGBoost.
_EARLY = re.compile(
    r"(?i)(?<!no[ _-])early[ _-]?stop"
    r"(?!\w{0,40}['\"]?\s?[ =:]\s?['\"]?(?:false|none|null|no|off|-?0)\b)"
    r"|(?<![a-z_])patience['\"]?[\s:=]{1,3}['\"]?[1-9]|validation scores don't improve"
    r"|hasn't improved in [0-9]"
)


class Totals(NamedTuple):
    """What a command says that there will be; None where it does not."""

    epochs: int | None = None
    iterations: int | None = None
    stops_early: bool = False
    """There may be fewer, by what is learnt until then."""


def totals_of(command: Sequence[str]) -> Totals:
    """What the options of *command* say, in any way that options are written.

    ``--epochs 6``, ``--epochs=6``, ``--trainer.max_iters=1200``, ``trainer.max_epochs=20``, also in
    the words of a shell. Of an option that is there twice the last one counts; of several with
    another name and another number nothing is taken: which of them it is cannot be told.
    """
    epochs: dict[str, int] = {}
    iterations: dict[str, int] = {}
    for full, value in options_of(command):
        name = last_part(full)
        for names, found in ((EPOCHS, epochs), (ITERATIONS, iterations)):
            if name in names and (number := _count(value)) is not None:
                found[name] = number
    early = stops_early(" ".join(command)[:_MOST_CHARS])
    return Totals(_the_one(epochs.values()), _the_one(iterations.values()), early)


def stops_early(text: str) -> bool:
    """Whether *text*, a command or a line of a log, speaks of early stopping."""
    return _EARLY.search(text) is not None


def _count(text: str) -> int | None:
    """A number of epochs or iterations; None where *text* is none (-1 often is “no limit”)."""
    text = text.strip("'\"")
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text.replace("_", ""))
    return int(number) if number.is_integer() and 1 <= number <= MAX_COUNT else None


def _the_one(numbers: Iterable[int]) -> int | None:
    different = set(numbers)
    return different.pop() if len(different) == 1 else None
