"""Recorded series: how they are read, scored and judged."""

import numpy as np
import pytest

from benchmarks.progress_baselines import BASELINES, errors_of
from headway.errors import InvalidInput
from headway.estimate.remaining.backtest import MAX_MOMENTS, backtest
from headway.estimate.remaining.diagnostics import diagnose
from headway.estimate.remaining.series import Series, read_series


def series(steps_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Series:
    count = len(steps_s)
    return Series(np.cumsum(steps_s), np.arange(1.0, count + 1), float(count))


def slow_start(count: int = 2000, seed: int = 3) -> Series:
    """The trap: as real ResNet-50 runs begin."""
    rng = np.random.default_rng(seed)
    steps_s = 0.2 * np.exp(rng.normal(0.0, 0.05, count))
    steps_s[:4] *= (400.0, 12.0, 5.0, 2.0)
    return series(steps_s)


def test_a_slow_start_meets_the_targets_and_beats_the_others() -> None:
    ours = backtest(slow_start())
    assert ours.from_first < 0.10
    assert ours.after_10_percent < 0.02
    for other in BASELINES:
        from_first, after_10_percent = errors_of(other, slow_start(), MAX_MOMENTS)
        assert ours.from_first < from_first
        assert ours.after_10_percent < after_10_percent


def test_a_few_dozen_epochs_meet_their_target() -> None:
    rng = np.random.default_rng(4)
    steps_s = 60.0 * np.exp(rng.normal(0.0, 0.05, 40))
    steps_s[0] *= 1.5
    assert backtest(series(steps_s)).from_first < 0.08


def test_a_prior_helps_at_the_beginning() -> None:
    recorded = slow_start(400)
    alone, primed = backtest(recorded), backtest(recorded, float(recorded.t_s[-1]))
    assert primed.from_first < alone.from_first


def test_the_others_are_what_they_are_called() -> None:
    """Steps of 1 s, then of 2 s: ten steps later the moving average says 2 s, tqdm nearly."""
    steps_s = np.concatenate([np.ones(100), 2.0 * np.ones(100)])
    for other in BASELINES:
        # Before the change all say half of the truth at most; from there on the truth.
        assert errors_of(other, series(steps_s), 1000)[0] == pytest.approx(0.22, abs=0.03)
        assert errors_of(other, series(np.ones(100)), 1000)[0] == pytest.approx(0.0, abs=1e-9)


def test_a_series_is_read() -> None:
    rows = b"t_s,iteration,total,x\n1,1,9,a\n2,2,9,\n2,2,9,\n1,1,9,\n4.5,3,9,\n"
    got = read_series(b"\xef\xbb\xbf" + rows, "s")
    assert got.t_s.tolist() == [1.0, 2.0, 4.5]
    assert got.iteration.tolist() == [1.0, 2.0, 3.0]
    assert got.total == 9.0


def test_times_since_1970_begin_with_the_run() -> None:
    got = read_series(b"t_s,iteration\n1700000000,1\n1700000005,2\n", "s")
    assert got.t_s.tolist() == [0.0, 5.0]
    assert got.total == 2.0


@pytest.mark.parametrize(
    ("data", "place", "field"),
    [
        (b"", "s", "file"),
        (b"t_s,total\n1,2\n", "s:1", "columns"),
        (b"t_s,iteration\n1,1\n", "s", "rows"),
        (b"t_s,iteration\n1,1\n2,x\n", "s:3", "iteration"),
        (b"t_s,iteration\nnan,1\n", "s:2", "t_s"),
        (b"t_s,iteration,total\n1,1,-4\n", "s:2", "total"),
        (b"t_s,iteration\n1\n", "s:2", "iteration"),
    ],
)
def test_a_series_that_cannot_be_read_is_named(data: bytes, place: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_series(data, "s")
    assert (caught.value.where, caught.value.field) == (place, field)


def test_steady_times_are_stationary() -> None:
    recorded = slow_start(1000)
    found = diagnose(recorded.t_s, recorded.iteration)
    assert found.stationary is True
    assert found.startup == 4
    assert found.iterations == 996
    assert found.cv == pytest.approx(0.05, rel=0.1)
    assert found.mean_s == pytest.approx(0.2, rel=0.02)
    assert "stationary (augmented" in found.sentence()


def test_times_that_wander_are_not() -> None:
    rng = np.random.default_rng(1)
    steps_s = 1.0 + 0.01 * np.abs(np.cumsum(rng.normal(0.0, 1.0, 500)))
    found = diagnose(np.cumsum(steps_s), np.arange(1.0, 501))
    assert found.stationary is False
    assert "not stationary" in found.sentence()


def test_too_few_or_equal_times() -> None:
    short = diagnose(np.arange(1.0, 6), np.arange(1.0, 6))
    assert (short.cv, short.stationary) == (pytest.approx(0.0), None)
    equal = diagnose(np.arange(1.0, 101), np.arange(1.0, 101))
    assert equal.stationary is True
    nothing = diagnose(np.array([]), np.array([]))
    assert nothing.cv is None
    assert "too few" in nothing.sentence()
