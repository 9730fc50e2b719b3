"""Where the speed goes, on made-up speeds."""

import math

import numpy as np
import pytest

from headway.estimate.remaining.changes import Mixture, mean_ahead
from headway.estimate.remaining.history import Array

NOISE = 0.05


def ahead(speeds: Array, total: float, noise: float = NOISE) -> Mixture:
    """What is said after *speeds*, one for each unit done of *total*."""
    return mean_ahead(speeds, np.ones(len(speeds)), noise, total, total - len(speeds))


def noisy(speeds: Array, seed: int = 1) -> Array:
    return speeds * np.exp(np.random.default_rng(seed).normal(0.0, NOISE, len(speeds)))


def test_a_steady_run_is_averaged_over_all_of_it() -> None:
    errors = []
    for seed in range(20):
        speeds = noisy(np.full(400, 3.0), seed)
        said = ahead(speeds, 1000).quantiles(0.5)[0]
        assert said == pytest.approx(speeds.mean(), rel=0.01)
        errors.append(said / 3.0 - 1.0)
    # One in twenty of a single entry's noise; the last ten entries would give a third.
    assert np.std(errors) < 0.1 * NOISE


@pytest.mark.parametrize("after", [4, 40])
@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_a_change_is_followed_from_its_first_few_entries(after: int, factor: float) -> None:
    speeds = noisy(np.concatenate((np.full(300, 2.0), np.full(after, 2.0 * factor))))
    said = ahead(speeds, 1000).quantiles(0.5)[0]
    assert said == pytest.approx(2.0 * factor, rel=3.0 * NOISE / math.sqrt(after))


def test_a_drift_is_carried_on_and_not_beyond_what_is_sure() -> None:
    whole = noisy(1.0 + 0.2 * np.arange(2000.0) / 2000)
    late = ahead(whole[:1000], 2000).quantiles(0.5)[0]
    assert late == pytest.approx(1.15, rel=0.015)  # the speed now is 1.10
    early = ahead(whole[:60], 2000)
    low, high = early.quantiles(0.1, 0.9)
    assert early.quantiles(0.5)[0] == pytest.approx(1.0, rel=0.03)
    assert high - low < 0.12


def test_a_wandering_speed_is_no_drift_and_less_sure() -> None:
    """The scatter of the parts is four times what the noise of single entries says."""
    rng = np.random.default_rng(3)
    waves = np.repeat(np.exp(rng.normal(0.0, 0.04, 50)), 20)
    said, steady = (
        ahead(speeds, 2000, noise=0.02) for speeds in (waves, np.exp(rng.normal(0.0, 0.02, 1000)))
    )
    widths = [np.ptp(mixture.quantiles(0.1, 0.9)) for mixture in (said, steady)]
    assert widths[0] > 3.0 * widths[1]


def test_quantiles_of_a_mixture() -> None:
    two = Mixture(np.array([3.0, 1.0]), np.array([1.0, 9.0]), np.array([0.1, 0.1]))
    assert two.quantiles(0.375)[0] == pytest.approx(1.0, abs=0.01)
    assert two.quantiles(0.875)[0] == pytest.approx(9.0, abs=0.01)
