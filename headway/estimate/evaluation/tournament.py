"""Who predicts best what a site asks: candidates meet on its own runs, by what is new in each.

Each run is predicted by fits on earlier runs, and by fits that never saw its recipe or its GPU
type; nobody is judged on what it has seen. The champion of a kind of question stays until another
is better by a paired test, in which a person's runs count as ten at most and an error as a factor
of eight.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, TimeSeriesSplit
from statsmodels.stats.weightstats import DescrStatsW

from headway.clock import Clock
from headway.estimate.candidates import candidates, quietly
from headway.estimate.duration.time_model import CHAMPION, SPAN
from headway.estimate.encode import Floats
from headway.estimate.estimator import FEWEST
from headway.estimate.evaluation.evaluate import HeldOut, Split, said_of, score
from headway.estimate.features import Configuration, Unit, from_trace
from headway.estimate.frame import frame_of
from headway.estimate.kinds import Kind, kind_of, new_in, seen_of
from headway.estimate.learnable import learnable, whose_run
from headway.estimate.physics import Tables
from headway.model.trace import Trace

log = logging.getLogger(__name__)

ROWS = 160
"""So many runs take part: the newest, an equal share of each recipe as far as it has them."""
FEWEST_TO_JUDGE = 10
"""With fewer runs of a kind a difference is chance."""
FEWEST_TO_LEARN = 10
"""A split that leaves fewer rows to learn from is none: some candidates cannot."""
OF_ONE = 10
"""A person's runs count as so many at most."""
BETTER = 0.98
"""A challenger's mean error is at most so much of the champion's."""
SURE = 0.05
"""What chance alone brings about no more often than so, over all challengers of a kind."""
WORST = 10
"""So many of the runs that were predicted worst are shown."""
_MOST = np.log(8.0)
"""An error of a logarithm counts as this at most: what is wrong by more is just wrong."""
_FORWARD, _GROUPS = 3, 2


class Brought(Protocol):
    """Estimators that others have brought, asked without rights and within limits."""

    def names(self) -> Collection[str]:
        """What they are called."""

    def said(
        self, name: str, X: pd.DataFrame, seconds: Floats, splits: Sequence[Split]
    ) -> Floats | None:
        """What one says of the rows that each split holds out, shape (splits, n, 3).

        None where it failed, or said what is no time.
        """

    def learn(self, name: str, X: pd.DataFrame, seconds: Floats) -> bytes | None:
        """What one has learnt, as `winners.kept`; None where it failed."""


@dataclass(frozen=True, slots=True)
class Tournament:
    """How everybody did, and who is champion of what."""

    rows: int
    """Runs that took part."""
    of: int
    """Runs that could have."""
    unit: Unit
    champions: Mapping[Kind, str]
    table: list[dict[str, Any]]
    """A row for each kind and candidate: runs, mean_error_frac, median_error_frac, coverage_frac,
    p_value against the champion before, champion."""
    calibration: list[dict[str, Any]]
    """A row for each kind: share of runs below the quantiles that its champion promised."""
    worst: list[dict[str, Any]] = field(default_factory=list)
    """The runs that the champions predicted worst, with what was new in them."""
    took_s: float = 0.0
    """By the clock, on one core."""
    changed: tuple[str, ...] = ()
    """What it changed, in words."""

    def words(self) -> str:
        """In a sentence, for people."""
        part = "all" if self.rows == self.of else f"{self.rows} of"
        told = "; ".join(self.changed) or "no champion changed"
        return (
            f"Candidates met on {part} {self.of} runs that measured one {self.unit}, "
            f"in {self.took_s:.0f} s: {told}"
        )


def tournament(
    traces: Sequence[Trace],
    tables: Tables,
    *,
    clock: Clock,
    before: Mapping[Kind, str] | None = None,
    brought: Brought | None = None,
) -> Tournament | None:
    """Let the candidates meet on *traces*; None where there are too few of one unit.

    Args:
        traces: Runs, and what was imported.
        tables: Facts of GPUs and networks.
        clock: For how long it takes.
        before: Champions of now; the product's own process where none is named.
        brought: What others have brought.
    """
    started_s, before = clock.monotonic_s(), before or {}
    known = [tables.complete(from_trace(t)) for t in traces]
    unit, timed = max(
        ((unit, learnable(traces, known, unit)) for unit in Unit), key=lambda each: len(each[1])
    )
    if len(timed) < 2 * FEWEST:
        return None
    chosen = _subsample([*timed], known, traces)
    # What a run was measured to do is not known of one that is asked about.
    rows = [replace(known[at], iterations=None) for at in chosen]
    seconds = np.array([timed[at] for at in chosen])
    runs = [(known[at], whose_run(traces[at])) for at in chosen]
    X = frame_of(rows)
    splits = [each for each in _splits(rows) if len(each[0]) >= FEWEST_TO_LEARN]
    said: dict[str, Floats] = {}
    for name, estimator in candidates().items():
        try:
            with quietly():
                told = [said_of(estimator, X, seconds, [split]) for split in splits]
            said |= {name: np.stack(told)} if told else {}
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            log.warning("%s takes no part tonight: %s", name, error)
    if brought is not None:
        theirs = {name: brought.said(name, X, seconds, splits) for name in brought.names()}
        said |= {name: found for name, found in theirs.items() if found is not None}
    if CHAMPION not in said:
        return None
    asked = _asked(rows, splits)
    champions, table, calibration = _judged(said, asked, seconds, runs, before)
    worst = _worst(said, asked, seconds, champions, [traces[at] for at in chosen])
    took_s = clock.monotonic_s() - started_s
    changed = tuple(
        f"{row['model']} beat {before.get(kind, CHAMPION)} at a {kind.value}, "
        f"{row['median_error_frac']:.0%} off in the median (p = {row['p_value']:.3f})"
        for kind in champions
        for row in table
        if row["kind"] == kind and row["is_champion"] and not row["was_champion"]
    )
    return Tournament(
        len(rows), len(timed), unit, champions, table, calibration, worst, took_s, changed
    )


def _subsample(
    timed: Sequence[int], known: Sequence[Configuration], traces: Sequence[Trace]
) -> list[int]:
    """Positions of those that take part, oldest first."""
    table = pd.DataFrame(
        {
            "at": timed,
            "recipe": [known[at].recipe for at in timed],
            "when": [str(traces[at].started_at or "") for at in timed],
        }
    ).sort_values("when", kind="stable")
    newest_first = table.iloc[::-1]
    turn = newest_first.groupby("recipe").cumcount()
    taken = newest_first.assign(turn=turn).sort_values("turn", kind="stable").head(ROWS)
    return [int(at) for at in table[table["at"].isin(taken["at"])]["at"]]


def _splits(rows: Sequence[Configuration]) -> Iterator[Split]:
    """Forward in time; then whole recipes, and whole GPU types, held out."""
    yield from TimeSeriesSplit(min(_FORWARD, len(rows) - 1)).split(rows)
    for name in ("recipe", "gpu_type"):
        groups = [getattr(c, name) for c in rows]
        if (count := min(_GROUPS, len(set(groups)))) > 1:
            yield from GroupKFold(count).split(rows, groups=groups)


def _asked(
    rows: Sequence[Configuration], splits: Sequence[Split]
) -> dict[Kind, list[tuple[int, int]]]:
    """By kind the splits and rows in which such a question was asked."""
    found: dict[Kind, list[tuple[int, int]]] = {}
    for number, (seen, held) in enumerate(splits):
        keys = seen_of(rows[at] for at in seen)
        for at in held:
            found.setdefault(kind_of(rows[at], keys), []).append((number, int(at)))
    return found


def _judged(
    said: Mapping[str, Floats],
    asked: Mapping[Kind, list[tuple[int, int]]],
    seconds: Floats,
    runs: Sequence[tuple[Configuration, str]],
    before: Mapping[Kind, str],
) -> tuple[dict[Kind, str], list[dict[str, Any]], list[dict[str, Any]]]:
    """Champions, the table of scores, and how the champions' quantiles held."""
    # Of what nobody asked tonight the champion stays.
    champions = {kind: name for kind, name in before.items() if name in said}
    table, calibration, people = [], [], {whose for _, whose in runs}
    for kind in (kind for kind in Kind if kind in asked):
        splits, rows = np.array(asked[kind]).T
        weight = _weights(kind, [runs[at] for at in rows])
        errors = {
            name: np.minimum(np.abs(np.log(each[splits, rows, 1] / seconds[rows])), _MOST)
            for name, each in said.items()
        }
        mean = {name: float(np.average(each, weights=weight)) for name, each in errors.items()}
        old = before.get(kind, CHAMPION) if before.get(kind) in said else CHAMPION
        chance = {
            name: _chance(errors[old] - each, weight)
            for name, each in errors.items()
            if name != old and mean[name] <= BETTER * mean[old]
        }
        sure = [name for name, p in chance.items() if p * (len(said) - 1) <= SURE]
        # Where a site has several people, none of them alone chooses for the others.
        alone = len(people) > 1 and len({runs[at][1] for at in rows}) == 1
        enough = weight.sum() >= FEWEST_TO_JUDGE and not alone
        champions[kind] = min(sure, key=mean.__getitem__) if sure and enough else old
        for name, each in said.items():
            figures = score(HeldOut(seconds[rows], each[splits, rows]))
            table.append(
                {
                    "kind": kind.value,
                    "model": name,
                    "runs": len(set(rows)),
                    "mean_error_frac": figures.mean_relative_error,
                    "median_error_frac": figures.median_relative_error,
                    "mean_log_error": mean[name],
                    "coverage_80_frac": figures.coverage_80_frac,
                    "p_value": chance.get(name),
                    "was_champion": name == old,
                    "is_champion": name == champions[kind],
                }
            )
        below = seconds[rows, None] <= said[champions[kind]][splits, rows]
        promised = zip(SPAN, np.average(below, axis=0, weights=weight), strict=True)
        calibration.append(
            {
                "kind": kind.value,
                "runs": len(set(rows)),
                **{f"{q:.0%}": float(b) for q, b in promised},
            }
        )
    return champions, table, calibration


def _chance(gain: Floats, weight: Floats) -> float:
    """How often chance alone brings such a mean *gain* in error: a paired t-test, one-sided."""
    if np.ptp(gain) == 0 or weight.sum() <= 2:
        return 1.0
    return float(DescrStatsW(gain, weights=weight).ttest_mean(0.0, alternative="larger")[1])


def _worst(
    said: Mapping[str, Floats],
    asked: Mapping[Kind, list[tuple[int, int]]],
    seconds: Floats,
    champions: Mapping[Kind, str],
    traces: Sequence[Trace],
) -> list[dict[str, Any]]:
    """The runs that the champions predicted worst, each once."""
    found: dict[int, dict[str, Any]] = {}
    for kind, pairs in asked.items():
        for split, at in pairs:
            low_s, median_s, high_s = map(float, said[champions[kind]][split, at])
            off = abs(float(np.log(median_s / seconds[at])))
            trace = traces[at]
            row = {
                "run_id": trace.run_id,
                "recipe": trace.recipe or trace.network,
                "on": f"{trace.gpus} × {trace.gpu_type}",
                "took_s": float(seconds[at]),
                "said_s": median_s,
                "off": off,
                "why": f"{kind.value}; the interval from {low_s:.3g} to {high_s:.3g} s "
                + ("held it" if low_s <= seconds[at] <= high_s else "did not hold it"),
                "model": champions[kind],
            }
            if at not in found or found[at]["off"] < off:
                found[at] = row
    return sorted(found.values(), key=lambda row: -row["off"])[:WORST]


def _weights(kind: Kind, runs: Sequence[tuple[Configuration, str]]) -> Floats:
    """What each answer counts: all that are new in the same way as one, a person's as `OF_ONE`.

    So forty runs of one new recipe are one new recipe, however often they were asked about.
    """
    told = [{"new": new_in(c, kind), "whose": whose} for c, whose in runs]
    table = pd.DataFrame(told)
    once = 1.0 / table.groupby("new")["whose"].transform("size")
    most = (OF_ONE / once.groupby(table["whose"]).transform("sum")).clip(upper=1.0)
    return (once * most.where(table["whose"] != "", 1.0)).to_numpy()
