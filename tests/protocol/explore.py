"""Breadth-first search through every state of the model, a whole level of it at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.protocol.invariants import broken
from tests.protocol.model import Model, Numbers
from tests.protocol.values import Rules

_AT_ONCE = 50_000
"""States whose steps are taken together: more would not be faster, only larger."""


@dataclass(frozen=True)
class Explored:
    """What a search found."""

    states: int
    steps: int
    depth: int
    violation: str = ""
    trace: tuple[str, ...] = ()
    """The shortest way to the violation."""
    stuck: int = 0
    """States from which no end can be reached."""


def explore(rules: Rules, *, tell: Callable[[int, int], None] | None = None) -> Explored:
    """Look at every state; stop at the first that breaks something.

    Args:
        rules: How large, and by which rules.
        tell: Called with the depth and the number of states now and then.
    """
    model = Model(rules)
    known = level = model.first()
    levels, steps = [], 0
    while len(level):
        levels.append(level)
        if found := _violation(model, levels, steps):
            return found
        following = []
        for part in _parts(level):
            for reached in model.steps(part):
                steps += len(reached.keys)
                following.append(_unknown(reached.keys, known))
        level = np.unique(np.concatenate(following))
        known = np.sort(np.concatenate((known, level)), kind="stable")
        if tell is not None:
            tell(len(levels), len(known))
    return Explored(len(known), steps, len(levels), stuck=_stuck(model, levels, known))


def _parts(keys: Numbers) -> Iterator[Numbers]:
    for begin in range(0, len(keys), _AT_ONCE):
        yield keys[begin : begin + _AT_ONCE]


def _unknown(keys: Numbers, known: Numbers) -> Numbers:
    """Those of *keys* that are not among the sorted *known*, each once."""
    keys = np.unique(keys)
    at = np.searchsorted(known, keys)
    return keys[known[np.minimum(at, len(known) - 1)] != keys]


def _violation(model: Model, levels: list[Numbers], steps: int) -> Explored | None:
    """What a state of the newest level breaks, or a step from one would."""
    level = levels[-1]
    never = model.work_out(level)
    amiss, violating = model.amiss(level), model.violating(level)
    if not len(amiss) and not len(violating):
        return None
    key = int(amiss[0] if len(amiss) else violating[0])
    state = model.state(key)
    what = broken(state.nodes, state.rows, model.rules) if len(amiss) else never
    states = sum(map(len, levels))
    return Explored(states, steps, len(levels) - 1, what, _trace(model, levels, key))


def _trace(model: Model, levels: list[Numbers], key: int) -> tuple[str, ...]:
    """The steps that lead to a state of the last level, from the first one."""
    trace = []
    for level in reversed(levels[:-1]):
        for part in _parts(level):
            for reached in model.steps(part):
                at = np.flatnonzero(reached.keys == key)
                if len(at):
                    break
            else:
                continue
            key = int(part[reached.sources[at[0]]])
            trace.append(model.rows.labels[int(reached.labels[at[0]])])
            break
    return tuple(reversed(trace))


def _stuck(model: Model, levels: list[Numbers], known: Numbers) -> int:
    """How many states have no way to an end: found backwards from the ends, again and again."""
    good = np.concatenate([model.is_over(part) for part in _parts(known)])
    while True:
        before = int(good.sum())
        for level in reversed(levels):
            for part in _parts(level[~good[np.searchsorted(known, level)]]):
                leaves = np.zeros(len(part), dtype=bool)
                for reached in model.steps(part):
                    ends = good[np.searchsorted(known, reached.keys)]
                    leaves[reached.sources[ends]] = True
                good[np.searchsorted(known, part[leaves])] = True
        if int(good.sum()) == before:
            return len(known) - before
