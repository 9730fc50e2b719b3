"""Recorded series: how they are read and scored."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.progress_backtest import MAX_MOMENTS, Series, backtest, read_series
from benchmarks.progress_baselines import BASELINES, errors_of


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


def test_a_series_is_read(tmp_path: Path) -> None:
    rows = tmp_path / "s.csv"
    rows.write_text("t_s,iteration,total,x\n1,1,9,a\n2,2,9,\n2,2,9,\n1,1,9,\n4.5,3,9,\n")
    got = read_series(rows)
    assert got.t_s.tolist() == [1.0, 2.0, 4.5]
    assert got.iteration.tolist() == [1.0, 2.0, 3.0]
    assert got.total == 9.0
    rows.write_text("t_s,iteration\n1700000000,1\n1700000005,2\n")
    got = read_series(rows)
    assert got.t_s.tolist() == [0.0, 5.0]
    assert got.total == 2.0
