"""What is left, on made-up runs whose truth is known."""

import math
import random
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.progress_backtest import backtest, read_series
from headway.estimate.remaining.history import MAX_ENTRIES, History
from headway.estimate.remaining.remaining_time import (
    RemainingEstimate,
    RemainingTime,
)


def follow(
    steps_s: list[float], total: int | None, *, prior_s: float | None = None
) -> RemainingTime:
    """A run after steps that took *steps_s*, of *total*."""
    remaining = RemainingTime(prior_s)
    for done, t_s in enumerate(accumulate(steps_s), start=1):
        remaining.update(t_s, float(done), total)
    return remaining


def after(steps_s: list[float], total: int, *, prior_s: float | None = None) -> RemainingEstimate:
    return follow(steps_s, total, prior_s=prior_s).at(sum(steps_s))


def test_a_start_hundreds_of_times_slower_is_forgotten() -> None:
    steps_s = [300.0, 20.0, 5.0] + [1.0] * 97
    # The mean of all steps would say 2,900 s more than the truth.
    assert after(steps_s, 1000).remaining_s == pytest.approx(900.0, rel=0.02)


@pytest.mark.parametrize("seen", [1, 2, 3, 5, 10])
def test_the_first_iterations_of_a_long_run_are_not_believed(seen: int) -> None:
    steps_s = ([300.0, 20.0, 5.0] + [1.0] * 97)[:seen]
    said = after(steps_s, 10_000).remaining_s
    assert said is not None
    assert said < 10.0 * (10_000 - seen)  # 3,000,000 s by the first iteration alone


@pytest.mark.parametrize("seen", [9, 12, 20])
def test_a_start_that_goes_up_and_down_is_left_out(seen: int) -> None:
    steps_s = [280.0, 17.0, 1.1, 10.0, 12.0] + [1.0] * 150
    said = after(steps_s[:seen], 155).remaining_s
    assert said is not None
    # The mean of the newest steps says five times too much; pauses that come again, twice.
    assert said / (155 - seen) == pytest.approx(1.0, rel=0.05)


def test_a_slow_step_among_the_first_is_not_expected_again() -> None:
    steps_s = [400.0, 18.0, 1.0, 1.0, 6.0] + [1.0] * 200
    for seen in (9, 15, 40):
        said = after(steps_s[:seen], 205).remaining_s
        assert said == pytest.approx(205 - seen, rel=0.03)


def test_two_alike_at_the_very_beginning_are_no_start_up() -> None:
    assert after([1.0, 1.1], 1000).remaining_s == pytest.approx(998.0, rel=0.1)


@pytest.mark.parametrize("import_s", [0.05, 0.3])
@pytest.mark.parametrize("prior_s", [None, 0.1])
def test_a_program_that_reports_each_epoch_as_it_begins_has_done_none_yet(
    import_s: float, prior_s: float | None
) -> None:
    """It said 0.2 s at the fifth of forty epochs of a second each."""
    for seen in range(2, 8):
        said = after([import_s] + [1.0] * (seen - 1), 40, prior_s=prior_s).remaining_s
        assert said == pytest.approx(40.0 - seen, rel=0.2)


def test_an_epoch_under_way_counts_once_it_is_longer_than_the_few_before_it() -> None:
    first = follow([0.05], 40)
    said = [first.at(0.05 + waited_s).remaining_s for waited_s in (0.3, 0.9)]
    assert said == pytest.approx([38 * 0.3, 38 * 0.9], rel=0.2)
    waits = follow([1.0, 1.0], 40).at(2.9)
    assert waits.remaining_s == pytest.approx(37.1, rel=0.05)  # not longer than those before it
    assert first.at(60.0).overdue > 0.0


@pytest.mark.parametrize("total", [8, 40, 100, 300])
def test_no_bound_is_told_that_the_second_epoch_shows_to_be_wrong(total: int) -> None:
    """It said `at most 28 s left` of a hundred epochs of a second, each told as it began."""
    remaining = RemainingTime()
    for done in (1, 2, 3):
        remaining.update(0.2 + done - 1, done, total)
        for waited_s in (0.0, 0.1, 0.3, 0.6, 0.9):
            t_s = 0.2 + done - 1 + waited_s
            said, left_s = remaining.at(t_s), 0.2 + total - t_s
            if (done, waited_s) in {(1, 0.0), (1, 0.1)}:
                assert said == RemainingEstimate(None, None, None)
            else:
                assert said.low_s <= left_s <= said.high_s


def test_the_first_epoch_of_a_few_is_believed() -> None:
    assert after([60.0], 40).remaining_s == pytest.approx(39 * 60.0, rel=0.01)


def test_the_first_epochs_of_a_few_count_alike_and_a_slow_one_does_not() -> None:
    assert after([62.0, 58.0], 10).remaining_s == pytest.approx(8 * 60.0, rel=0.01)
    assert after([180.0, 62.0, 58.0], 10).remaining_s == pytest.approx(7 * 60.0, rel=0.01)


def test_pauses_are_paid_when_they_come() -> None:
    one_epoch_s = [1.0] * 99 + [51.0]
    # Five epochs of 150 s are left, not five of 100 s.
    assert after(one_epoch_s * 5, 1000).remaining_s == pytest.approx(750.0, rel=0.02)
    # In the middle of an epoch its own pause is still to come.
    assert after(one_epoch_s * 5 + [1.0] * 50, 1000).remaining_s == pytest.approx(700.0, rel=0.02)


@pytest.mark.parametrize(("before_s", "now_s"), [(1.0, 2.0), (2.0, 1.0)])
def test_a_change_of_speed_is_followed(before_s: float, now_s: float) -> None:
    steps_s = [before_s] * 200 + [now_s] * 20
    assert after(steps_s, 400).remaining_s == pytest.approx(180 * now_s, rel=0.02)


def test_one_slow_step_is_no_change_of_speed() -> None:
    rng = random.Random(7)
    steps_s = [math.exp(rng.gauss(0.0, 0.03)) for _ in range(300)]
    steps_s[-1] *= 1.5
    assert after(steps_s, 1000).remaining_s == pytest.approx(700.0, rel=0.02)


@pytest.mark.parametrize("last_s", [0.25, 0.05, 0.0])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_one_short_step_is_no_change_of_speed(last_s: float, more: int) -> None:
    """It halved what is left, within 7 %, until the next report: through a whole validation."""
    steps_s = [0.5] * 20 + [last_s] + [0.5] * more
    remaining = follow(steps_s, len(steps_s) + 180)
    for waited_s in (0.0, 20.0):
        said = remaining.at(sum(steps_s) + waited_s)
        assert said.remaining_s == pytest.approx(90.0, rel=0.02)
        assert said.low_s is not None
        assert said.low_s < 90.0


def test_what_a_bar_says_last_of_each_epoch_is_no_change_of_speed() -> None:
    """Ten units at a time, and at last what was left of the epoch, soon after: twice so far."""
    remaining, t_s, done = RemainingTime(), 0.0, 0.0
    for seconds, units in ([(5.0, 10.0)] * 9 + [(5.0, 9.0), (0.05, 1.0)]) * 2:
        t_s, done = t_s + seconds, done + units
        remaining.update(t_s, done, 400.0)
    assert remaining.at(t_s).remaining_s == pytest.approx(100.0, rel=0.05)


def test_an_even_drift_is_carried_on() -> None:
    steps_s = [1.0 + 0.0004 * i + 0.01 * math.sin(1.7 * i) for i in range(1000)]
    truth_s = sum(steps_s[500:])
    assert after(steps_s[:500], 1000).remaining_s == pytest.approx(truth_s, rel=0.03)
    assert truth_s > 1.06 * 500 * steps_s[500]  # the speed at the time says less


def test_the_interval_of_a_drift_holds_four_in_five() -> None:
    held = []
    for seed in range(12):
        rng = random.Random(seed)
        slope = (0.2, -0.15)[seed % 2] / 1000
        steps_s = [(1.0 + slope * i) * math.exp(rng.gauss(0.0, 0.05)) for i in range(1000)]
        for seen in (100, 200, 400, 600, 900):
            left = after(steps_s[:seen], 1000)
            assert left.low_s is not None
            assert left.high_s is not None
            held.append(left.low_s < sum(steps_s[seen:]) < left.high_s)
            assert left.high_s < 1.4 * left.low_s
    assert 0.7 < sum(held) / len(held) < 0.95


def test_prior_alone_before_the_first_step_and_evidence_alone_in_the_end() -> None:
    remaining = RemainingTime(1000.0, 800.0, 1500.0)
    first = remaining.at(100.0)
    assert first.remaining_s == pytest.approx(900.0, rel=1e-3)
    assert first.low_s is not None
    assert first.high_s is not None
    assert 500.0 < first.low_s < 900.0 < first.high_s < 1600.0
    late = after([1.0] * 100, 200, prior_s=1e6)
    assert late.remaining_s == pytest.approx(100.0, rel=0.1)  # the prior said eleven days


def test_a_prior_moves_towards_the_evidence() -> None:
    seen = (1, 3, 10, 30, 60)
    said = [after([1.0] * n, 100, prior_s=200.0).remaining_s for n in seen]
    numbers = [number / (100 - n) for number, n in zip(said, seen, strict=True) if number]
    assert 1.2 < numbers[0] < 2.1
    assert numbers[1:] == pytest.approx([1.0] * 4, rel=0.07)
    assert numbers[-1] == pytest.approx(1.0, rel=0.01)


def test_a_slow_start_is_not_taken_for_a_prior_that_was_too_low() -> None:
    steps_s = [300.0, 20.0] + [1.0] * 48
    # 618 s in all, of which the start-up was 318.
    assert after(steps_s, 300, prior_s=618.0).remaining_s == pytest.approx(250.0, rel=0.02)


def test_the_very_first_step_is_taken_off_the_prior() -> None:
    # 400 s in all, 300 of them gone: not 99 % of 400.
    assert after([300.0], 100, prior_s=400.0).remaining_s == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("prior_s", [300.0, 600.0, 1200.0])
def test_a_prior_says_nothing_of_what_little_is_left(prior_s: float) -> None:
    steps_s = ([1.0] * 49 + [101.0]) * 4  # 600 s, the last pause at the very end
    for seen in (120, 170, 190):
        said = after(steps_s[:seen], 200, prior_s=prior_s).remaining_s
        assert said == pytest.approx(sum(steps_s[seen:]), rel=0.03)


def test_a_prior_far_from_what_is_seen_is_not_believed() -> None:
    assert after([1.0] * 10, 100, prior_s=10_000.0).remaining_s == pytest.approx(90.0, rel=0.1)


def test_two_kinds_of_pauses_are_told_apart_where_they_meet() -> None:
    steps_s = [1.0 + 20.0 * (i % 40 == 0) + 90.0 * (i % 100 == 0) for i in range(1, 1001)]
    for seen in (450, 500, 640, 990):
        truth_s = sum(steps_s[seen:])
        assert after(steps_s[:seen], 1000).remaining_s == pytest.approx(truth_s, rel=0.06)


def test_two_kinds_of_pauses_stay_apart_where_pauses_are_many() -> None:
    """Every seventh and every eleventh step: a fifth of all hold a pause."""
    steps_s = [1.0 + 100.0 * (i % 7 == 0) + 15.0 * (i % 11 == 0) for i in range(1, 173)]
    for seen in (60, 87, 118, 160):
        truth_s = sum(steps_s[seen:])
        assert after(steps_s[:seen], 172).remaining_s == pytest.approx(truth_s, rel=0.02)


def test_slow_steps_at_random_count_in_the_mean() -> None:
    rng = random.Random(5)
    steps_s = [1.0 + 4.0 * (rng.random() < 0.2) for _ in range(2000)]
    assert after(steps_s[:1000], 2000).remaining_s == pytest.approx(sum(steps_s[1000:]), rel=0.06)


def test_one_long_pause_is_not_expected_again_and_again() -> None:
    steps_s = [1.0] * 100 + [50.0] + [1.0] * 150
    assert after(steps_s, 1000).remaining_s == pytest.approx(750.0, rel=0.2)


def test_pauses_keep_their_places_in_a_long_history() -> None:
    steps_s = [1.0 + 40.0 * (i % 300 == 0) for i in range(1, 12_001)]
    for seen in (6_100, 11_950):
        truth_s = sum(steps_s[seen:])
        assert after(steps_s[:seen], 12_000).remaining_s == pytest.approx(truth_s, rel=0.02)


@pytest.mark.parametrize("prior_s", [None, 0.0, -5.0, math.nan, math.inf])
def test_without_a_usable_prior_and_a_total_nothing_is_said(prior_s: float | None) -> None:
    assert follow([1.0] * 20, None, prior_s=prior_s).at(20.0) == RemainingEstimate(None, None, None)


def test_past_its_prediction_a_run_lasts_as_long_as_those_like_it_that_lasted_so_long() -> None:
    """Drawn from the law that the prediction stands for; its rest was a twentieth of its age."""
    remaining = RemainingTime(100.0, 50.0, 200.0)
    scale = math.log(200.0 / 50.0) / (2 * 1.5332)  # Student's, with four degrees of freedom
    drawn_s = 100.0 * np.exp(scale * np.random.default_rng(1).standard_t(4.0, 400_000))
    for t_s in (0.0, 60.0, 150.0, 250.0):
        said = remaining.at(t_s)
        rest_s = drawn_s[drawn_s > t_s] - t_s
        expected = np.quantile(rest_s, (0.1, 0.5, 0.9)).tolist()
        assert [said.low_s, said.remaining_s, said.high_s] == pytest.approx(expected, rel=0.03)


def test_of_a_run_that_has_outlasted_all_like_it_nothing_is_said() -> None:
    said = RemainingTime(100.0, 50.0, 200.0).at(1000.0)
    assert (said.remaining_s, said.high_s) == (None, None)


def test_between_two_reports_the_clock_counts_down_by_one_step_at_most() -> None:
    remaining = follow([10.0] * 20, 40)
    said = [remaining.at(t_s).remaining_s for t_s in (200.0, 204.0, 900.0)]
    assert said == pytest.approx([200.0, 196.0, 190.0], rel=0.01)
    assert remaining.at(900.0).high_s > 190.0 + 690.0  # who is late so long may be as long again


def test_a_stall_is_noticed() -> None:
    remaining = follow(([1.0] * 49 + [20.0]) * 4, 400)
    ended_s = 4 * 69.0
    a_pause_as_before = remaining.at(ended_s + 20.0)
    assert a_pause_as_before.overdue == 0.0
    stalled = remaining.at(ended_s + 70.0)
    assert stalled.overdue > 0.0
    assert stalled.overdue == pytest.approx(70.0, rel=0.05)


def test_stopping_early_is_noticed() -> None:
    assert follow([1.0] * 50, 100).ended_early
    assert not follow([1.0] * 100, 100).ended_early
    assert not follow([1.0] * 50, None).ended_early


def test_the_interval_holds_the_estimate_and_narrows() -> None:
    steps_s = [1.0, 1.2, 0.9, 1.1, 0.8] * 40
    widths = []
    for seen in (2, 10, 50, 180):
        left = after(steps_s[:seen], 200)
        assert left.low_s is not None
        assert left.remaining_s is not None
        assert left.high_s is not None
        assert 0.0 < left.low_s < left.remaining_s < left.high_s
        widths.append(left.high_s / left.low_s)
    assert widths == sorted(widths, reverse=True)


def test_reports_read_in_one_piece_are_one_report() -> None:
    """A follower that reads four times a second sees a fast run in lumps."""
    lumps = RemainingTime()
    for done in range(1, 501):
        lumps.update(0.25 * math.ceil(done * 0.1 / 0.25), float(done), 1000)
    assert lumps.at(50.0).remaining_s == pytest.approx(50.0, rel=0.05)


def test_a_process_that_takes_over_reads_the_whole_log_at_once() -> None:
    taken = RemainingTime()
    for done in range(1, 101):
        taken.update(200.0, float(done), 200)
    for done in range(101, 121):
        taken.update(200.0 + 2.0 * (done - 100), float(done), 200)
    assert taken.at(240.0).remaining_s == pytest.approx(160.0, rel=0.05)


def test_reports_of_many_steps_say_the_same_as_reports_of_each() -> None:
    coarse = RemainingTime()
    for step in range(0, 501, 50):
        coarse.update(step * 2.0, float(step), 1000)
    assert coarse.at(1000.0).remaining_s == pytest.approx(1000.0, rel=0.02)


def test_time_that_goes_back_and_numbers_that_are_none_change_nothing() -> None:
    remaining = follow([1.0] * 20, 40)
    before = remaining.at(20.0)
    for t_s, done, total in ((19.0, 30.0, 40), (math.nan, 30.0, 40), (25.0, math.nan, math.nan)):
        remaining.update(t_s, done, total)
    assert remaining.at(20.0) == before


def test_a_program_that_starts_over_keeps_its_speed() -> None:
    remaining = follow([2.0] * 50, 100)
    remaining.update(110.0, 0.0, 100)
    assert remaining.at(110.0).remaining_s == pytest.approx(200.0, rel=0.05)


def test_what_comes_when_all_that_was_told_is_done_is_not_known() -> None:
    """A bar was full, and 0 s were said to be left while its program drew for 20 s more."""
    assert after([1.0] * 20, 20) == RemainingEstimate(None, None, None)


def test_what_comes_then_is_known_by_runs_like_it() -> None:
    law = NormalDist(math.log(10.0), 0.3)
    remaining = RemainingTime(30.0, 25.0, 36.0, after=law)
    for done in range(1, 11):
        remaining.update(2.0 * done, done, 10)
        left = remaining.at(2.0 * done)
        assert left.low_s < 30.0 - 2.0 * done < left.high_s
        assert left.remaining_s == pytest.approx(30.0 - 2.0 * done, rel=0.2)
    assert remaining.at(25.0).remaining_s == pytest.approx(5.5, rel=0.2)
    assert remaining.at(60.0).remaining_s is None
    remaining.update(60.0, 1, 10)  # that is what came after: of what comes then nothing was learnt
    remaining.update(70.0, 5, 10)
    assert remaining.at(70.0).remaining_s < 15.0


def test_a_run_that_may_stop_early_is_told_by_how_many_runs_like_it_had() -> None:
    remaining, law = RemainingTime(), NormalDist(math.log(40.0), 0.1)
    remaining.may_end_early = True
    for done in range(1, 21):
        remaining.update(float(done), done, 100, usual=law)
    left = remaining.at(20.0)
    assert 10.0 < left.low_s < 20.0 < left.high_s < 40.0
    for done in range(21, 61):
        remaining.update(float(done), done, 62, usual=law)
    left = remaining.at(60.0)
    assert (left.low_s, left.remaining_s) == (0.0, pytest.approx(2.0, rel=0.1))  # it outlasted them


REPORTS = st.lists(
    st.tuples(
        st.floats(0, 1e7) | st.just(math.nan),
        st.floats(0, 1e12) | st.just(math.inf),
        st.none() | st.floats(-1, 1e12),
    ),
    max_size=40,
)


@given(REPORTS, st.none() | st.floats(0.001, 1e9), st.floats(0, 1e8))
@settings(max_examples=200)
def test_whatever_is_reported_the_answer_is_a_time(
    reports: list[tuple[float, float, float | None]], prior_s: float | None, t_s: float
) -> None:
    remaining = RemainingTime(prior_s)
    for report in reports:
        remaining.update(*report)
    said = remaining.at(t_s)
    if said.remaining_s is None:
        assert (said.low_s, said.high_s) == (None, None)
        assert prior_s is None or t_s > prior_s
    else:
        assert said.low_s is not None
        assert said.high_s is not None
        assert 0.0 <= said.low_s <= said.remaining_s <= said.high_s < math.inf


def test_the_history_is_bounded_and_loses_no_time() -> None:
    history = History()
    for done in range(1, 20_001):
        history.add(done * 0.5, float(done), 30_000)
    seen = history.intervals()
    assert len(seen.units) <= MAX_ENTRIES
    assert float((seen.units * seen.unit_s).sum()) == pytest.approx(10_000.0)
    assert float(seen.end[-1]) == 20_000.0


def first_report(t_s: float, done: float, total: float) -> RemainingEstimate:
    remaining = RemainingTime()
    remaining.update(t_s, done, total)
    return remaining.at(t_s)


def test_the_first_report_of_many_iterations_is_about_their_mean_and_wide_downwards() -> None:
    """20 of 200 after 14 s: 126 s are left without a start-up, 12 s if the first one took ten."""
    said = first_report(14.0, 20.0, 200.0)
    assert said.remaining_s is not None
    assert said.low_s is not None
    assert said.high_s is not None
    assert 40.0 < said.remaining_s < 126.0
    assert said.low_s < 12.0
    assert 126.0 < said.high_s < 250.0


def test_the_more_iterations_a_first_report_covers_the_surer_it_is() -> None:
    widths, shares = [], []
    for covered in (1, 5, 20, 50, 200, 1000):
        said = first_report(0.7 * covered, float(covered), 20_000.0)
        assert said.remaining_s is not None
        assert said.low_s is not None
        assert said.high_s is not None
        widths.append(said.high_s / said.low_s)
        shares.append(said.remaining_s / (0.7 * (20_000 - covered)))
    assert widths == sorted(widths, reverse=True)
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    assert widths[-1] < 6.0


def test_the_second_report_of_many_iterations_settles_it() -> None:
    remaining = RemainingTime()
    remaining.update(14.0, 20.0, 200.0)
    remaining.update(18.0, 40.0, 200.0)  # ten of the first fourteen seconds were start-up
    assert remaining.at(18.0).remaining_s == pytest.approx(32.0, rel=0.15)


def in_epochs(
    until: int, *, per_epoch: int, epochs: int, pause_s: float, every: int = 50, says: bool = True
) -> RemainingEstimate:
    """A steady run of one second an iteration, with *pause_s* after each epoch."""
    remaining, t_s = RemainingTime(), 0.0
    for done in range(1, until + 1):
        t_s += 1.0 + (pause_s if done > 1 and done % per_epoch == 1 else 0.0)
        if done % every == 0:
            epoch = done / per_epoch if says else None
            remaining.update(t_s, float(done), float(per_epoch * epochs), epoch=epoch)
    return remaining.at(t_s)


@pytest.mark.parametrize("pause_s", [0.0, 50.0, 150.0])
def test_before_the_first_epoch_ends_what_comes_there_is_not_known(pause_s: float) -> None:
    said = in_epochs(400, per_epoch=500, epochs=10, pause_s=pause_s)
    truth_s = 4600.0 + 9 * pause_s
    assert said.low_s is not None
    assert said.high_s is not None
    assert said.low_s < truth_s < said.high_s
    after = in_epochs(1050, per_epoch=500, epochs=10, pause_s=pause_s)
    assert after.low_s is not None
    assert after.high_s is not None
    if pause_s == 0.0:  # two ends have shown that nothing comes
        assert after.high_s / after.low_s < 0.8 * said.high_s / said.low_s


def test_a_run_of_one_epoch_has_no_end_to_wait_for() -> None:
    one = in_epochs(400, per_epoch=5000, epochs=1, pause_s=0.0)
    many = in_epochs(400, per_epoch=500, epochs=10, pause_s=0.0)
    assert one.high_s is not None
    assert many.high_s is not None
    assert one.high_s < 0.8 * many.high_s


def test_what_an_earlier_attempt_did_took_no_time_here() -> None:
    """The first report of 41 of 100 said 5 s, and at most 11."""
    remaining = RemainingTime(is_resumed=True)
    remaining.update(4.0, 41.0, 100.0)
    assert remaining.at(4.5).remaining_s is None
    for t_s in (5.0, 6.0, 7.0):
        remaining.update(t_s, 37.0 + t_s, 100.0)
    assert remaining.at(7.0).remaining_s == pytest.approx(56.0, rel=0.1)


def test_an_attempt_that_resumes_waits_for_its_own_first_end() -> None:
    def resumed(until: int) -> RemainingEstimate:
        remaining = RemainingTime()
        for done in range(1600, until + 1, 50):
            remaining.update(float(done - 1550), float(done), 5000.0, epoch=done / 500)
        return remaining.at(float(until - 1550))

    widths = [
        said.high_s / said.low_s
        for said in (resumed(1950), resumed(2150))
        if said.high_s is not None and said.low_s is not None
    ]
    assert widths[1] < 0.8 * widths[0]


RECORDED = Path(__file__).parents[3] / "data" / "remaining"


@pytest.mark.parametrize(
    "names",
    [("mmdet-a", "mmdet-c", "paddleclas", "ppocr"), ("mmdet-b", "paddleclas-cpu", "xtuner")],
    ids=["tuned on", "held out"],
)
def test_real_runs_end_within_what_was_said_before_their_first_epoch_ended(
    names: tuple[str, ...],
) -> None:
    shares = []
    for name in names:
        series = read_series(RECORDED / f"{name}.csv")
        score = backtest(series)
        assert score.early_coverage_frac is not None
        shares.append(score.early_coverage_frac)
    assert min(shares) >= 0.75
