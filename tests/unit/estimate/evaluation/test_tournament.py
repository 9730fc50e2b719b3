from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from headway.clock import SystemClock
from headway.estimate.evaluation import tournament as subject
from headway.estimate.evaluation.tournament import tournament
from headway.estimate.features import Unit, from_trace
from headway.estimate.kinds import Kind
from headway.estimate.physics import shipped
from headway.model.trace import Trace

AT = datetime(2026, 1, 2, tzinfo=UTC)


def a_site(count=120, owner=lambda i: f"p{i % 12}"):
    """Runs whose time goes by an option's remainder, which no smooth model foretells."""
    rng = np.random.default_rng(0)
    return [
        Trace(
            f"n{i % 3}", "v100", 1, 8, epochs=1.0, recipe=f"n{i % 3}", owner=owner(i), team="t",
            metrics={"--seed": float(seed)}, started_at=AT + timedelta(hours=i), run_id=f"r{i}",
            runtime_s=time_of(seed) * float(np.exp(rng.normal(0, 0.02))),
        )
        for i in range(count)
        for seed in [int(rng.integers(1, 1000))]
    ]  # fmt: skip


def time_of(seed):
    return 10.0 * 4.0 ** (seed * 7919 % 5 - 2)


class Someone:
    """Brought: what it says, and what it was shown."""

    def __init__(self, say):
        self.say, self.shown = say, []

    def names(self):
        return ["theirs"]

    def said(self, name, X, seconds, splits):
        found = np.full((len(splits), len(X), 3), np.nan)
        for number, (seen, held) in enumerate(splits):
            self.shown.append((set(seen), set(held)))
            middle = self.say(X.iloc[held])
            found[number, held] = np.column_stack([middle / 1.05, middle, middle * 1.05])
        return found

    def learn(self, name, X, seconds):
        return b"what it has learnt"


def knows(X):
    return np.array([time_of(int(seed)) for seed in X["--seed"]])


@pytest.fixture(autouse=True)
def _only_the_quick_take_part(monkeypatch):
    every = subject.candidates
    quick = ("gp", "physics")
    monkeypatch.setattr(
        subject, "candidates", lambda unit: {name: every(unit)[name] for name in quick}
    )


def met(traces, **options):
    return tournament(traces, shipped(), clock=SystemClock(), **options)


def test_who_knows_better_wins_by_its_score_and_says_by_how_much():
    got = met(a_site(), brought=Someone(knows))
    assert got.champions[Kind.OPTION] == "theirs"
    assert got.unit is Unit.RUN
    assert any("theirs beat gp at a new option" in said for said in got.changed)
    (row,) = [r for r in got.table if r["model"] == "theirs" and r["kind"] == Kind.OPTION]
    assert row["p_value"] < 0.01
    assert row["mean_error_frac"] < 0.05


def test_nobody_is_asked_what_it_has_seen_and_time_goes_forward():
    them = Someone(knows)
    met(a_site(), brought=them)
    assert all(not seen & held for seen, held in them.shown)
    forward = them.shown[:3]
    assert all(max(seen) < min(held) for seen, held in forward)


def test_who_is_no_better_takes_nobodys_place():
    got = met(a_site(), brought=Someone(lambda X: np.full(len(X), 10.0)), before={})
    assert set(got.champions.values()) == {"gp"}
    assert got.changed == ()
    assert "no champion changed" in got.words()


def test_a_champion_stays_until_it_is_beaten_and_one_that_is_gone_is_followed_by_headways_own():
    site = a_site()
    again = met(site, brought=Someone(knows), before={Kind.OPTION: "theirs"})
    assert again.champions[Kind.OPTION] == "theirs"
    assert again.changed == ()
    gone = met(site, before={Kind.OPTION: "theirs"})
    assert gone.champions[Kind.OPTION] == "gp"


def test_one_persons_many_runs_do_not_choose_a_champion():
    """Right for one person with half of all runs, and far off for everybody else."""
    site = a_site(owner=lambda i: "eve" if i % 2 else f"p{i}")
    hers = {t.metrics["--seed"] for t in site if t.owner == "eve"}

    def flatters(X):
        return np.array([time_of(int(s)) if s in hers else 1e-6 for s in X["--seed"]])

    got = met(site, brought=Someone(flatters))
    mean = {r["model"]: r for r in got.table if r["kind"] == Kind.OPTION}
    assert mean["theirs"]["median_error_frac"] < mean["gp"]["median_error_frac"]
    assert got.champions[Kind.OPTION] == "gp"


def test_forty_runs_of_one_new_recipe_are_one_new_recipe():
    got = met(a_site(), brought=Someone(knows))
    assert {r["runs"] for r in got.table if r["kind"] == Kind.RECIPE} == {120}
    assert got.champions[Kind.RECIPE] == "gp", "three recipes decide nothing"


def test_the_worst_are_told_with_what_was_new():
    got = met(a_site())
    offs = [row["off"] for row in got.worst]
    assert len(offs) == subject.WORST
    assert offs == sorted(offs, reverse=True)
    assert all(row["run_id"].startswith("r") and "interval from" in row["why"] for row in got.worst)


def test_of_many_runs_the_newest_of_each_recipe_take_part_and_that_is_said():
    many = a_site(900)
    rare = [replace(t, recipe="rare", started_at=AT - timedelta(days=9)) for t in many[:5]]
    got = met([*rare, *many[5:]])
    assert (got.rows, got.of) == (subject.ROWS, 900)
    assert f"{subject.ROWS} of 900 runs" in got.words()


def test_a_handful_of_runs_is_no_tournament():
    assert met(a_site(6)) is None


def test_what_a_run_was_measured_to_do_is_told_to_nobody():
    class Sees(Someone):
        def said(self, name, X, seconds, splits):
            self.shown.append(X["iterations"].notna().any())
            return super().said(name, X, seconds, splits)

    someone = Sees(knows)
    met([replace(each, iterations=1000 + i) for i, each in enumerate(a_site())], brought=someone)
    assert someone.shown[0] == np.False_


def test_a_recipe_that_ran_once_beside_another_stops_no_night():
    once = [replace(a_site()[0], network="once", recipe="once", gpu_type="a100", run_id="o")]
    site = [replace(each, network="n", recipe="n") for each in a_site(40)]
    assert met([*site, *once]) is not None


def test_what_only_one_of_several_people_runs_changes_nothing_for_the_others():
    hers = a_site(owner=lambda _: "eve")
    others = [
        replace(each, owner=f"p{i % 4}", metrics={"--seed": 1.0}, runtime_s=time_of(1))
        for i, each in enumerate(a_site(60))
    ]
    site = [each for pair in zip(hers[:60], others, strict=True) for each in pair]
    assert met(site, brought=Someone(knows)).champions[Kind.OPTION] == "gp"


def test_a_team_of_many_recipes_leaves_half_of_the_places_to_others_and_counts_as_forty():
    many = [replace(t, recipe=f"m{i}", team="many") for i, t in enumerate(a_site(400))]
    few = [replace(t, team="few") for t in a_site(120)]
    mixed = sorted([*many, *few], key=lambda t: t.started_at)
    known = [from_trace(t) for t in mixed]
    chosen = [mixed[at] for at in subject._subsample(range(len(mixed)), known, mixed)]
    assert [t.team for t in chosen].count("few") == subject.ROWS // 2
    rows, split = [from_trace(t) for t in chosen], (np.arange(20), np.arange(20, len(chosen)))
    answers = subject._answers(rows, chosen, np.ones(len(chosen)), [split])
    assert answers.groupby(["kind", "team"])["weight"].sum().max() == pytest.approx(40)
