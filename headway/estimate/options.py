"""The options of a command, and how the time of a recipe's runs changes with them.

    log(T - s) = c + Σ b log x

with a start-up time s that no option changes, and for each number x among the options a power b
that is learnt from the runs, beside what its name lets expect: one for an amount of work such as
epochs, nothing for a seed. Bayes' linear regression (Bishop, Pattern Recognition and Machine
Learning, 2006, §3.3) for each of several s, weighted by how likely they make the runs.
"""

import math
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from headway.estimate.spread import Z80

EPOCHS = frozenset({
    "epochs", "num_epochs", "num_epoch", "n_epochs", "n_epoch", "nepochs", "nb_epochs", "nb_epoch",
    "max_epochs", "max_epoch", "total_epochs", "train_epochs", "num_train_epochs",
    "training_epochs", "number_of_epochs",
    "n_estimators", "num_boost_round", "num_boost_rounds", "num_rounds", "num_round", "n_rounds",
})  # fmt: skip
"""Of argparse, click, Hydra and configuration of PyTorch's examples, Lightning, Keras, timm,
Hugging Face's Trainer and Accelerate, fairseq; and the boosting rounds and trees of XGBoost and
LightGBM, which are what a job calls its epochs."""
ITERATIONS = frozenset({
    "max_steps", "max_iters", "max_iter", "num_steps", "total_steps", "train_steps",
    "num_train_steps", "max_train_steps", "num_training_steps", "training_steps", "max_updates",
    "max_update", "total_iters", "num_iters", "n_iters", "num_iterations", "n_iterations",
    "max_iterations", "iterations", "num_iteration", "train_iters", "total_timesteps",
    "total_frames", "n_timesteps", "num_timesteps", "n_trials", "num_trials",
})  # fmt: skip
"""The same of nanoGPT and minGPT, Megatron, mmengine, stable-baselines3, CleanRL, Optuna."""
EPISODES = frozenset({
    "episodes", "num_episodes", "num_episode", "n_episodes", "n_episode", "total_episodes",
    "max_episodes", "max_episode",
})  # fmt: skip
"""Of reinforcement learning: each of as many steps as it takes."""
AMOUNTS = EPOCHS | ITERATIONS | EPISODES
_OPTION = re.compile(
    r"-{0,2}\+{0,2}(?P<name>[A-Za-z][\w.\-/]{0,200})(?:[=:](?P<value>.*))?", re.DOTALL
)
_YACS = re.compile(r"[A-Z0-9_]+(?:\.[A-Z0-9_]+)+")
_MOST_WORDS = 2000
_ALONE = "--argument-"
_SHELLS = frozenset({"-c", "-lc", "-ec", "-ic"})


def options_of(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and value of each option of *command*, in any way that options are written.

    ``--epochs 6``, ``--epochs=6``, ``-n 4``, ``trainer.max_epochs=20``, ``SOLVER.MAX_ITER 900``
    (yacs), also in the words of a shell; names without their dashes.
    """
    words = list(words_of(command))[:_MOST_WORDS]
    for at, word in enumerate(words):
        found = _OPTION.fullmatch(word)
        if found is None:
            continue
        value = found["value"]
        if value is None:
            if not (word.startswith("-") or _YACS.fullmatch(word)) or at + 1 == len(words):
                continue
            value = words[at + 1]
        yield found["name"], value


def last_part(name: str) -> str:
    """``trainer.max-epochs`` → ``max_epochs``, ``nEpochs`` → ``n_epochs``."""
    last = re.split(r"[./]", name)[-1].replace("-", "_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()


def numbers_of(command: Sequence[str], config: Mapping[str, Any] | None = None) -> dict[str, float]:
    """The numbers among the options of *command* and in its configuration, as ``--name``.

    They are kept with a trace under the same names (in its metrics), so that an
    estimator can learn which of them matter. What *command* overrides counts as it says. A number
    that stands alone, as in ``train.py 40``, is ``--argument-1``, the next one ``--argument-2``.
    """
    found: dict[str, object] = {f"--{name}": value for name, value in leaves(config or {})}
    found |= {f"{_ALONE}{at}": each for at, each in enumerate(_alone(command), start=1)}
    for name, text in options_of(command):
        with suppress(ValueError):
            found[f"--{name}"] = None
            found[f"--{name}"] = float(text)
    numbers = {name: number_of(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if value is not None}


def named(settings: Mapping[str, float]) -> dict[str, float]:
    """*settings* without those that are numbers which stand alone."""
    return {name: value for name, value in settings.items() if not name.startswith(_ALONE)}


def _alone(command: Sequence[str]) -> Iterator[float]:
    """The numbers of *command* that are neither in an option nor may be the value of one."""
    before = ""
    for word in islice(words_of(command), _MOST_WORDS):
        if not (before.startswith("-") or _YACS.fullmatch(before)) or "=" in before:
            with suppress(ValueError):
                yield float(word)
        before = word


def leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """What lies in nested configuration, each under its dotted name."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def number_of(value: object) -> float | None:
    """*value* where it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None


def words_of(command: Sequence[str]) -> Iterator[str]:
    """The words of *command*, those that it hands to a shell each by itself."""
    for at, word in enumerate(command):
        if at and command[at - 1] in _SHELLS:
            try:
                yield from shlex.split(word, comments=True)
            except ValueError:  # a quotation that does not end
                yield from word.split()
        else:
            yield word


class _Expected(NamedTuple):
    """What is expected of the power of an option before any run has shown it."""

    mean: float
    sd: float
    memory: bool = False
    """Whether it may change how much memory a run takes."""


Count = Literal["iterations", "epochs"]
"""What a run has so many of."""
_OF_DATA = re.compile(r"(?:.*[_-])?(?:samples|rows|examples)")
_OF_AMOUNT, _OF_OTHERS = _Expected(1.0, 0.1), _Expected(0.2, 0.5, memory=True)
_OF_BATCHES = _Expected(-0.2, 0.3, memory=True)
_BY_NAME = (
    (re.compile(r"(?:.*_)?(?:seed|random_state|port|log|logdir|verbos\w*|print|debug|rank|id|run"
                r"|trial|fold|version|device|cuda|gpu|wandb|log_\w+|print_\w+)"),
     _Expected(0.0, 0.02)),
    (re.compile(r"lr|(?:.*_)?(?:learning_rate|lr|eta|momentum|weight_decay|wd|decay|dropout|beta"
                r"|beta[12]|gamma|alpha|lambda|epsilon|eps|temperature|margin|clip|threshold)"),
     _Expected(0.0, 0.15)),
    (re.compile(r"(?:.*_)?(?:samples|n_samples|rows|examples|steps|iters|iterations|episodes"
                r"|rounds|timesteps|generations|trees|repeats?)"),
     _Expected(1.0, 0.15)),
    (re.compile(r"(?:.*_)?(?:batch|batch_size|bs|bsz)"), _OF_BATCHES),
    (re.compile(r"(?:.*_)?(?:workers|threads|jobs|n_jobs|procs?|cpus)"),
     _Expected(-0.2, 0.3, memory=True)),
    (re.compile(r"(?:.*_)?(?:layers?|depth|hidden|width|dim|embd?|heads?|channels|units|size"
                r"|length|block_size|max_len|resolution|res|features|argument_[0-9]+)"),
     _Expected(0.5, 0.5, memory=True)),
)  # fmt: skip


def _expected(name: str) -> _Expected:
    last = last_part(name.lstrip("-"))
    if last in AMOUNTS:
        return _OF_AMOUNT
    return next((each for names, each in _BY_NAME if names.fullmatch(last)), _OF_OTHERS)


def _expected_of_count(name: str, count: Count) -> _Expected:
    """The same of how many iterations a run has: what its network is like seldom changes that.

    Nor do epochs change with it, with the size of a batch, or with how much data there are.
    """
    found = _expected(name)
    if count == "epochs" and (found.mean != 1.0 or _OF_DATA.fullmatch(last_part(name.lstrip("-")))):
        return found if found is _OF_OTHERS else _Expected(0.0, min(found.sd, _MATTERS_NOT))
    if found.mean == 1.0 or found is _OF_OTHERS:
        return found
    return _Expected(-0.5, 0.5) if found is _OF_BATCHES else _Expected(0.0, min(found.sd, 0.3))


def may_change_count(name: str, count: Count) -> bool:
    """Whether runs that name this option, and others that do not, may differ in their *count*."""
    expected = _expected_of_count(name, count)
    return expected.mean != 0.0 or expected.sd > _MATTERS


def may_change_memory(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether the options in which both differ may have one take more memory than the other."""
    return any(_expected(name).memory for name in _differing([one, other]))


def _differing(settings: Sequence[Mapping[str, float]]) -> list[str]:
    """The options that not all of *settings* have with the same number."""
    names = {name for each in settings for name in each}
    return sorted(name for name in names if len({each.get(name) for each in settings}) > 1)


@dataclass(frozen=True, slots=True)
class ByOptions:
    """What a run is taken to last, or to have of iterations, by others with other options."""

    log_value: float
    """Logarithm of its seconds, or of its iterations."""
    sd: float
    words: str
    """Which options its time changes with, and which it does not, as far as that is known."""

    @property
    def half(self) -> float:
        """Half the width of the interval of 80 %, as a logarithm."""
        return Z80 * self.sd


_NOISE_SD, _NOISE_WEIGHT = 0.15, 3.0
"""Of log runtime between runs that differ in nothing, and how many runs that belief is worth."""
_STARTS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_USUAL_START_S, _START_SPREAD = 2.0, 1.0
_MATTERS, _MATTERS_NOT = 0.2, 0.1
"""Powers above and below which an option is said to matter, or not."""
_MOST_NAMES = 50
_MISSING_SD = 0.3
"""Added for each option that only some of the runs name: what it is for the others is not known."""
_AMOUNT_SD = 1.5
"""The same of an amount of work: what a program does by itself may be ten times less, or more."""


def by_options(
    wanted: Mapping[str, float],
    seen: Sequence[tuple[Mapping[str, float], float]],
    counted: Iterable[str] = (),
    *,
    count: Count | None = None,
) -> ByOptions:
    """What a run with the options *wanted* lasts, or how many iterations or epochs it has.

    Args:
        wanted: Numbers by name.
        seen: The same of runs of its recipe, each with the logarithm of its seconds; at least one.
        counted: Last parts of the names of options whose effect is in these seconds already.
        count: What *seen* has in the place of seconds, which no start-up adds to.
    """
    rows = [settings for settings, _ in seen]
    differing = [n for n in _differing([wanted, *rows]) if last_part(n.lstrip("-")) not in counted]
    names = [n for n in differing if n in wanted and all(n in row for row in rows)][:_MOST_NAMES]

    def expected(name: str) -> _Expected:
        return _expected_of_count(name, count) if count else _expected(name)

    scales = [_scale([each[n] for each in (wanted, *rows)]) for n in names]
    fits = _fits(
        [[x[0] for x in scales], *([x[at] for x in scales] for at in range(1, len(rows) + 1))],
        [log_s for _, log_s in seen],
        [expected(name) for name in names],
        _STARTS_S[:1] if count else _STARTS_S,
    )
    total = sum(each.weight for each in fits)
    mean = sum(each.weight * each.log_value for each in fits) / total
    variance = sum(each.weight * (each.variance + (each.log_value - mean) ** 2) for each in fits)
    missing = [expected(name) for name in set(differing) - set(names)]
    unknown = sum(_AMOUNT_SD**2 for each in missing if each.mean == 1.0)
    unknown += sum(_MISSING_SD**2 for each in missing if each.mean != 1.0 and each.sd > _MATTERS)
    best = max(fits, key=lambda each: each.weight)
    return ByOptions(
        mean,
        math.sqrt(variance / total + unknown),
        _words_for(names, best.powers, best.power_sds),
    )


def _scale(values: Sequence[float]) -> list[float]:
    """*values* as logarithms; around 0, where some are not above it, of one more."""
    if min(values) > 0:
        return [math.log(each) for each in values]
    return [math.copysign(math.log1p(abs(each)), each) for each in values]


class _Fit(NamedTuple):
    """The regression for one start-up time."""

    log_value: float
    variance: float
    powers: Sequence[float]
    power_sds: Sequence[float]
    weight: float


def _fits(
    x: Sequence[Sequence[float]],
    log_s: Sequence[float],
    expected: Sequence[_Expected],
    starts_s: Sequence[float],
) -> list[_Fit]:
    """One for each start-up time that is less than the shortest run; the first of *x* is asked."""
    import numpy as np  # noqa: PLC0415 - only where runs with other options are asked

    rows = np.array(x, dtype=np.float64).reshape(len(x), len(expected))
    inputs = np.column_stack([np.ones(len(rows)), rows - rows[1:].mean(axis=0)])
    design, asked = inputs[1:], inputs[0]
    prior = np.array([0.0, *(each.mean for each in expected)])
    precision = np.diag([1e-6, *(each.sd**-2 for each in expected)])
    shortest_s, found = math.exp(min(log_s)), []
    for start_s in (each for each in starts_s if each < 0.9 * shortest_s):
        y = np.log(np.exp(log_s) - start_s)
        noise = _NOISE_SD**2
        for _ in range(2):  # the noise follows from what the first fit leaves
            covariance = np.linalg.inv(precision + design.T @ design / noise)
            powers = covariance @ (precision @ prior + design.T @ y / noise)
            left = y - design @ powers
            noise = (_NOISE_WEIGHT * _NOISE_SD**2 + left @ left) / (_NOISE_WEIGHT + len(y))
        # Evidence of the runs: a Gaussian of all of them, with the powers integrated out.
        spread = design @ np.linalg.inv(precision) @ design.T + noise * np.eye(len(y))
        gap = y - design @ prior
        log_evidence = -0.5 * (gap @ np.linalg.solve(spread, gap) + np.linalg.slogdet(spread)[1])
        log_evidence -= float(np.sum(y) - np.sum(log_s))  # of the seconds, not of what is left
        log_evidence -= 0.5 * (math.log((start_s + 0.25) / _USUAL_START_S) / _START_SPREAD) ** 2
        work_s = math.exp(min(float(asked @ powers), 40.0))
        share = work_s / (work_s + start_s)  # what of the run changes with its work
        found.append(
            _Fit(
                math.log(work_s + start_s),
                float(asked @ covariance @ asked) * share**2 + noise,
                powers[1:].tolist(),
                np.sqrt(np.diag(covariance)[1:]).tolist(),
                log_evidence,
            )
        )
    top = max(each.weight for each in found)
    return [each._replace(weight=math.exp(each.weight - top)) for each in found]


def _words_for(names: Sequence[str], powers: Sequence[float], sds: Sequence[float]) -> str:
    plain = [name.lstrip("-") for name in names]
    known = list(zip(plain, powers, sds, strict=True))
    does = [n for n, power, sd in known if abs(power) > max(_MATTERS, sd)]
    does_not = [n for n, power, sd in known if max(abs(power), sd) < _MATTERS_NOT]
    said = f"scales with {', '.join(does)}" if does else ""
    if does_not:
        said += (
            f"{', ' if said else 'does '}not {'' if does else 'scale '}with {', '.join(does_not)}"
        )
    return said
