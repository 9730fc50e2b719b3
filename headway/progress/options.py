"""How many epochs or iterations there will be, or at most, as a command or its files say it."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from headway.estimate.options import (
    AMOUNTS,
    EPISODES,
    EPOCHS,
    ITERATIONS,
    last_part,
    leaves,
    options_of,
)
from headway.progress.seen import MAX_COUNT

_NUMBER = re.compile(r"[0-9][0-9_]{0,15}(?:\.0{1,3})?(?:[eE]\+?[0-9]{1,2})?")
_MOST_CHARS = 10_000
# In a file of configuration num_steps may as well be a sampler's, and max_iter a solver's.
_OF_TRAINING = re.compile(r"(?:(?:train(?:er|ing)?|optim(?:izer)?|run|fit)\.)?[^.]*\Z")
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
    episodes: int | None = None
    """Of reinforcement learning, which is over before where it has learnt enough."""
    stops_early: bool = False
    """There may be fewer, by what is learnt until then."""


def totals_of(command: Sequence[str], config: Mapping[str, Any] | None = None) -> Totals:
    """What the options of *command* say, in any way that options are written; else its *config*.

    ``--epochs 6``, ``--epochs=6``, ``--trainer.max_iters=1200``, ``trainer.max_epochs=20``, also in
    the words of a shell. Of an option that is there twice the last one counts; of several with
    another name and another number nothing is taken: which of them it is cannot be told. Where
    *command* says anything of it, its configuration says nothing: it may be another unit's.
    """
    settings = dict(leaves(config or {}))
    options = options_of(command)
    said: dict[str, object] = {n: value for n, value in options if last_part(n) in AMOUNTS}
    said = said or {name: value for name, value in settings.items() if _is_runs(name)}
    words = " ".join([*command, *(f"{name}={value}" for name, value in settings.items())])
    return Totals(
        _the_one(said, EPOCHS),
        _the_one(said, ITERATIONS),
        _the_one(said, EPISODES),
        stops_early(words[:_MOST_CHARS]),
    )


def _is_runs(name: str) -> bool:
    return last_part(name) in EPOCHS or _OF_TRAINING.match(name) is not None


def _the_one(said: Mapping[str, object], names: Collection[str]) -> int | None:
    counts = {_count(value) for name, value in said.items() if last_part(name) in names} - {None}
    return counts.pop() if len(counts) == 1 else None


def stops_early(text: str) -> bool:
    """Whether *text*, a command or a line of a log, speaks of early stopping."""
    return _EARLY.search(text) is not None


def _count(value: object) -> int | None:
    """A number of epochs or iterations; None where *value* is none (-1 often is “no limit”)."""
    text = str(value).strip("'\"")
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text.replace("_", ""))
    return int(number) if number.is_integer() and 1 <= number <= MAX_COUNT else None
