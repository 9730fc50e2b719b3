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
from scipy.special import stdtr
from sklearn.model_selection import GroupKFold, TimeSeriesSplit

from headway.clock import Clock
from headway.estimate.candidates import candidates, quietly
from headway.estimate.duration.time_model import CHAMPION, SPAN
from headway.estimate.encode import Floats
from headway.estimate.estimator import FEWEST
from headway.estimate.evaluation.compare import BETTER, FEWEST_TO_JUDGE, OF_ONE
from headway.estimate.evaluation.evaluate import HeldOut, Split, log_errors, said_of, score
from headway.estimate.features import Configuration, Unit, from_trace
from headway.estimate.frame import frame_of
from headway.estimate.kinds import Kind, kind_of, new_in, seen_of
from headway.estimate.learnable import learnable, whose_run
from headway.estimate.physics import Tables
from headway.model.trace import Trace

log = logging.getLogger(__name__)

ROWS = 160
"""So many runs take part: the newest, an equal share of each recipe as far as it has them; a team
has no more than half of them while others have more."""
FEWEST_TO_LEARN = 10
"""A split that leaves fewer rows to learn from is none: some candidates cannot."""
OF_TEAM = 40
"""A team's runs count as so many at most."""
SURE = 0.05
"""What chance alone brings about no more often than so, over all challengers of a kind."""
WORST = 10
"""So many of the runs that were predicted worst are shown."""
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
    runs = [traces[at] for at in chosen]
    X = frame_of(rows)
    splits = [each for each in _splits(rows) if len(each[0]) >= FEWEST_TO_LEARN]
    said: dict[str, Floats] = {}
    for name, estimator in candidates(unit).items():
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
    answers = _answers(rows, runs, seconds, splits)
    asked = answers["split"], answers["at"]
    answered = {name: each[asked] for name, each in said.items()}
    champions, table, calibration = _judged(answered, answers, before)
    worst = _worst(answered, answers, champions, runs)
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
            "team": [traces[at].team for at in timed],
            "when": [str(traces[at].started_at or "") for at in timed],
        }
    ).sort_values("when", kind="stable")
    newest_first = table.iloc[::-1]
    turn = newest_first.groupby("recipe").cumcount()
    ordered = newest_first.assign(turn=turn).sort_values("turn", kind="stable")
    many = ordered.groupby("team").cumcount() >= ROWS // 2
    taken = pd.concat([ordered[~many], ordered[many]]).head(ROWS)
    return [int(at) for at in table[table["at"].isin(taken["at"])]["at"]]


def _splits(rows: Sequence[Configuration]) -> Iterator[Split]:
    """Forward in time; then whole recipes, and whole GPU types, held out."""
    yield from TimeSeriesSplit(min(_FORWARD, len(rows) - 1)).split(rows)
    for name in ("recipe", "gpu_type"):
        groups = [getattr(c, name) for c in rows]
        if (count := min(_GROUPS, len(set(groups)))) > 1:
            yield from GroupKFold(count).split(rows, groups=groups)


def _answers(
    rows: Sequence[Configuration], runs: Sequence[Trace], seconds: Floats, splits: Sequence[Split]
) -> pd.DataFrame:
    """What was asked: split, at (which row), kind, new, whose, seconds, weight.

    All that are new in the same way weigh as one, a person's as `OF_ONE`, a
    team's as `OF_TEAM`: so forty runs of one new
    recipe are one new recipe, however often they were asked about.
    """
    found = []
    for number, (seen, held) in enumerate(splits):
        keys = seen_of(rows[at] for at in seen)
        for at in map(int, held):
            kind = kind_of(rows[at], keys)
            whose = whose_run(runs[at])
            new, team = new_in(rows[at], kind), runs[at].team
            found.append((number, at, kind, new, whose, team, seconds[at]))
    columns = ["split", "at", "kind", "new", "whose", "team", "seconds"]
    table = pd.DataFrame(found, columns=columns)
    weight = 1.0 / table.groupby(["kind", "new"])["at"].transform("size")
    for column, most in (("whose", OF_ONE), ("team", OF_TEAM)):
        total = weight.groupby([table["kind"], table[column]]).transform("sum")
        weight *= (most / total).clip(upper=1.0).where(table[column] != "", 1.0)
    return table.assign(weight=weight)


def _judged(
    told: Mapping[str, Floats], answers: pd.DataFrame, before: Mapping[Kind, str]
) -> tuple[dict[Kind, str], list[dict[str, Any]], list[dict[str, Any]]]:
    """Champions, the table of scores, and how the champions' quantiles held.

    Args:
        told: By name what was said to each of *answers*, shape (n, 3).
        answers: As `_answers` gives them.
        before: Champions of now.
    """
    # Of what nobody asked tonight the champion stays.
    champions = {kind: name for kind, name in before.items() if name in told}
    table, calibration, several = [], [], answers["whose"].nunique() > 1
    for kind in Kind:
        part = answers[answers["kind"] == kind]
        if part.empty:
            continue
        weight, runs = part["weight"].to_numpy(), part["at"].nunique()
        held = {name: HeldOut(part["seconds"].to_numpy(), told[name][part.index]) for name in told}
        errors = {name: log_errors(each) for name, each in held.items()}
        mean = {name: float(np.average(each, weights=weight)) for name, each in errors.items()}
        old = champions.get(kind, CHAMPION)
        chance = {
            name: _chance(errors[old] - each, weight)
            for name, each in errors.items()
            if name != old and mean[name] <= BETTER * mean[old]
        }
        sure = [name for name, p in chance.items() if p * (len(told) - 1) <= SURE]
        # Where a site has several people, none of them alone chooses for the others.
        alone = several and part["whose"].nunique() == 1
        enough = weight.sum() >= FEWEST_TO_JUDGE and not alone
        champions[kind] = min(sure, key=mean.__getitem__) if sure and enough else old
        for name, each in held.items():
            figures = score(each)
            table.append(
                {
                    "kind": kind.value,
                    "model": name,
                    "runs": runs,
                    "mean_error_frac": figures.mean_relative_error,
                    "median_error_frac": figures.median_relative_error,
                    "mean_log_error": mean[name],
                    "coverage_80_frac": figures.coverage_80_frac,
                    "p_value": chance.get(name),
                    "was_champion": name == old,
                    "is_champion": name == champions[kind],
                }
            )
        best = held[champions[kind]]
        below = np.average(best.measured_s[:, None] <= best.said_s, axis=0, weights=weight)
        promised = {f"{q:.0%}": float(b) for q, b in zip(SPAN, below, strict=True)}
        calibration.append({"kind": kind.value, "runs": runs, **promised})
    return champions, table, calibration


def _chance(gain: Floats, weight: Floats) -> float:
    """How often chance alone brings such a mean *gain* in error: a paired t-test, one-sided."""
    if np.ptp(gain) == 0 or weight.sum() <= 2:
        return 1.0
    mean, freedom = np.average(gain, weights=weight), weight.sum() - 1.0
    deviation = np.sqrt(np.average((gain - mean) ** 2, weights=weight) / freedom)
    return float(stdtr(freedom, -mean / deviation))


def _worst(
    told: Mapping[str, Floats],
    answers: pd.DataFrame,
    champions: Mapping[Kind, str],
    runs: Sequence[Trace],
) -> list[dict[str, Any]]:
    """The runs that the champions predicted worst, each once."""
    best = [told[champions[kind]][at] for at, kind in enumerate(answers["kind"])]
    off = np.abs(np.log(np.array(best)[:, 1] / answers["seconds"]))
    ordered = (
        answers.assign(off=off, said=best).sort_values("off", ascending=False).drop_duplicates("at")
    )
    found = []
    for row in ordered.head(WORST).to_dict("records"):
        (low_s, median_s, high_s), took_s = map(float, row["said"]), row["seconds"]
        trace, kind = runs[row["at"]], row["kind"]
        held = "held it" if low_s <= took_s <= high_s else "did not hold it"
        found.append(
            {
                "run_id": trace.run_id,
                "recipe": trace.recipe or trace.network,
                "on": f"{trace.gpus} × {trace.gpu_type}",
                "took_s": took_s,
                "said_s": median_s,
                "off": row["off"],
                "why": f"{kind}; the interval from {low_s:.3g} to {high_s:.3g} s {held}",
                "model": champions[kind],
            }
        )
    return found
