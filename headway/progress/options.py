"""How many epochs or iterations there will be, as the options of a command say it."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headway.progress.seen import MAX_COUNT

_EPOCHS = frozenset({
    "epochs", "num_epochs", "n_epochs", "nb_epochs", "nb_epoch", "max_epochs", "max_epoch",
    "total_epochs", "train_epochs", "num_train_epochs", "training_epochs", "number_of_epochs",
    "n_estimators", "num_boost_round", "num_boost_rounds", "num_rounds", "num_round", "n_rounds",
})  # fmt: skip
"""Of argparse, click, Hydra and configuration of PyTorch's examples, Lightning, Keras, timm,
Hugging Face's Trainer and Accelerate, fairseq; and the boosting rounds and trees of XGBoost and
LightGBM, which are what a job calls its epochs."""
_ITERATIONS = frozenset({
    "max_steps", "max_iters", "max_iter", "num_steps", "total_steps", "train_steps",
    "num_train_steps", "max_train_steps", "num_training_steps", "training_steps", "max_updates",
    "max_update", "total_iters", "num_iters", "n_iters", "num_iterations", "n_iterations",
    "max_iterations", "train_iters", "total_timesteps", "total_frames",
})  # fmt: skip
"""The same of nanoGPT and minGPT, Megatron, mmengine, stable-baselines3, CleanRL."""
_OPTION = re.compile(
    r"-{0,2}\+{0,2}(?P<name>[A-Za-z][\w.\-/]{0,200})(?:[=:](?P<value>.*))?", re.DOTALL
)
_NUMBER = re.compile(r"[0-9][0-9_]{0,15}(?:\.0{1,3})?(?:[eE]\+?[0-9]{1,2})?")
_MOST_WORDS = 2000
_SHELLS = frozenset({"-c", "-lc", "-ec", "-ic"})


class Totals(NamedTuple):
    """What a command says that there will be; None where it does not."""

    epochs: int | None = None
    iterations: int | None = None


def totals_of(command: Sequence[str]) -> Totals:
    """What the options of *command* say, in any way that options are written.

    ``--epochs 6``, ``--epochs=6``, ``--trainer.max_iters=1200``, ``trainer.max_epochs=20``, also in
    the words of a shell. Of an option that is there twice the last one counts; of several with
    another name and another number nothing is taken: which of them it is cannot be told.
    """
    epochs: dict[str, int] = {}
    iterations: dict[str, int] = {}
    for name, value in _options(list(_words(command))[:_MOST_WORDS]):
        for names, found in ((_EPOCHS, epochs), (_ITERATIONS, iterations)):
            if name in names and (number := _count(value)) is not None:
                found[name] = number
    return Totals(_the_one(epochs.values()), _the_one(iterations.values()))


def _words(command: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(command):
        if at and command[at - 1] in _SHELLS:
            try:
                yield from shlex.split(word, comments=True)
            except ValueError:  # a quotation that does not end
                yield from word.split()
        else:
            yield word


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Last part of each option's name, and its value."""
    for at, word in enumerate(words):
        found = _OPTION.fullmatch(word)
        if found is None:
            continue
        value = found["value"]
        if value is None:
            if not word.startswith("--") or at + 1 == len(words):
                continue
            value = words[at + 1]
        yield re.split(r"[./]", found["name"])[-1].replace("-", "_").lower(), value


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
