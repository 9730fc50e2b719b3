"""How fast jobs that share a GPU go, from measured pairs.

Measured on V100 GPUs for the Gavel scheduler (Narayanan et al., OSDI 2020; MIT licence, text in
`pair_speeds.LICENSE`): 636 ordered pairs of 26 training programs. `pair_speeds.csv` has the speed
of the row's program beside the column's, 1 for alone. Programs are ordered by how much they slow
others, the lightest first. The 40 pairs whose memory did not fit there are told from the others by
`SlowDown` (`benchmarks/pair_speeds.py --fill`), and begin with ~.
"""

import csv
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import prod


@cache
def _pairs() -> tuple[tuple[float, ...], ...]:
    text = (files("headway.replay") / "pair_speeds.csv").read_text("utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    return tuple(tuple(float(cell.removeprefix("~")) for cell in row[1:]) for row in rows)


@cache
def pair_speed(utilisation_frac: float, other_frac: float) -> float:
    """Speed of a job that uses so much of a GPU alone, beside one that uses *other_frac*.

    A trace does not say which programs its jobs were: the part of a GPU's time that a job uses
    is taken for its place among the measured programs, from the lightest to the heaviest.
    """
    pairs = _pairs()
    own, other = (
        min(int(each * len(pairs)), len(pairs) - 1) for each in (utilisation_frac, other_frac)
    )
    return pairs[own][other]


def shared_speed(utilisation_frac: float, others: Sequence[float]) -> float:
    """Speed of a job beside *others* on one GPU: the product of its speeds beside each."""
    return prod(pair_speed(utilisation_frac, each) for each in others)
