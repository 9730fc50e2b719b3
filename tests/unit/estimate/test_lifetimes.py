"""How long runs go on, drawn from what ended and from what still runs."""

import math
import statistics

import pytest

from headway.estimate.lifetimes import Life, Lifetimes
from headway.estimate.survival import Survival
from headway.estimate.usual import Kind, Lasted, Usual
from headway.model.run import Span
from headway.units import HOUR_S

KIND = Kind("resnet", "ada", "image", 1)
NOBODY = Usual(())
OTHER = Kind("vgg", "bob", "image2", 4)


def ended(lasted_s: float, submitted_s: float, kind: Kind = KIND) -> Life:
    return Life(kind, submitted_s, lasted_s, over=True)


def drawn(lifetimes: Lifetimes, one: Life, rounds: int = 400) -> list[float]:
    return [lifetimes.round(seed)(one) for seed in range(rounds)]


def test_those_that_go_on_count_for_as_long_as_they_were_seen() -> None:
    assert Survival.of([(1.0, True), (2.0, True), (3.0, True), (4.0, True)]).quantile(0.5) == 2.0
    # Of four, two went on after 2: half have ended by 1, nobody knows when the others do.
    seen = Survival.of([(1.0, True), (1.0, True), (2.0, False), (2.0, False)])
    assert (seen.quantile(0.5), seen.quantile(0.6)) == (1.0, None)
    # One that left unseen at 1 is as likely to have ended at 2 as at 3.
    assert Survival.of([(1.0, False), (2.0, True), (3.0, True)]).quantile(0.5) == 2.0
    assert Survival.of([(1.0, True), (2.0, True), (3.0, True)]).quantile(0.4, beyond=1.0) == 2.0
    assert Survival.of([]).quantile(0.5) is None


def test_a_run_goes_on_as_those_did_that_lasted_as_long() -> None:
    lives = [ended(60.0 if at % 2 else 7200.0, 1000.0 * at) for at in range(200)]
    fresh, old = Life(KIND, 1e6), Life(KIND, 2e6, lasted_s=600.0)
    lifetimes = Lifetimes([*lives, fresh, old], NOBODY)
    assert sorted({60.0, 7200.0}) == sorted(set(drawn(lifetimes, fresh)))
    assert set(drawn(lifetimes, old)) == {6600.0}


def test_its_own_prediction_speaks_first_and_whoever_outlived_it_goes_on() -> None:
    lives = [ended(60.0, 1000.0 * at) for at in range(20)]
    said = Span(900.0, 1000.0, 1200.0)
    left = drawn(Lifetimes(lives, NOBODY), Life(KIND, 1e6, learnt=said))
    assert statistics.median(left) == pytest.approx(1000.0, rel=0.05)
    late = drawn(Lifetimes(lives, NOBODY), Life(KIND, 1e6, lasted_s=50_000.0, learnt=said))
    assert statistics.median(late) == pytest.approx(50_000.0, rel=0.3)


def test_runs_that_were_submitted_together_are_drawn_together() -> None:
    lives = [ended(10.0 ** (at % 5), 1000.0 * at) for at in range(100)]
    batch = [Life(KIND, 1e6 + at) for at in range(3)]
    apart = Life(KIND, 2e6)
    lifetimes = Lifetimes([*lives, *batch, apart], NOBODY)
    alike = [len({lifetimes.round(seed)(one) for one in batch}) for seed in range(50)]
    assert set(alike) == {1}
    assert any(lifetimes.round(s)(batch[0]) != lifetimes.round(s)(apart) for s in range(50))
    # Once one of them has ended the others are taken to last as long.
    known = Lifetimes([*lives, ended(300.0, 1e6), *batch[1:]], NOBODY)
    assert statistics.median(drawn(known, batch[1])) == pytest.approx(300.0, rel=0.2)
    # Of those that run for an hour none is taken to have been short.
    longer = Lifetimes([*lives, Life(KIND, 1e6, lasted_s=3600.0), *batch[1:]], NOBODY)
    assert min(drawn(longer, batch[1])) > 3600.0


def test_few_of_its_like_speak_as_they_do_in_the_plan() -> None:
    usual = Usual([Lasted(KIND, 120.0), *(Lasted(OTHER, 9000.0) for _ in range(40))])
    others = [ended(9000.0, 1000.0 * at, OTHER) for at in range(40)]
    lifetimes = Lifetimes([*others, ended(120.0, 0.0)], usual)
    assert statistics.median(drawn(lifetimes, Life(KIND, 1e6))) == pytest.approx(120.0, rel=0.1)


def test_of_whom_nothing_is_known_the_draws_are_wide_and_within_the_limit() -> None:
    left = drawn(Lifetimes([], NOBODY), Life(OTHER, 0.0))
    assert min(left) >= HOUR_S
    assert statistics.median(left) == pytest.approx(2 * HOUR_S, rel=0.2)
    limited = Kind("vgg", "bob", "image2", 4, limit_s=1.5 * HOUR_S)
    assert max(drawn(Lifetimes([], NOBODY), Life(limited, 0.0))) == 1.5 * HOUR_S
    assert all(math.isfinite(each) and each >= 1.0 for each in left)
