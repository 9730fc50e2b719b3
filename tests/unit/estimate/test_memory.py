"""Memory estimates, on made-up recipes whose true law is known."""

from dataclasses import asdict

import numpy as np
import pytest
from pydantic import TypeAdapter

from headway.estimate.features import Configuration
from headway.estimate.memory import GPU_TERMS, HOST_TERMS, MemoryModel, Peak
from headway.units import GIB, MIB


def recipe(rng, name, traces, noise):
    """Peaks of one recipe whose law is base + rate × data set, and the law."""
    base, rate = rng.uniform(80, 600) * MIB, rng.uniform(1.5, 9)

    def draw():
        size = int(np.exp(rng.uniform(np.log(20 * MIB), np.log(4 * GIB))))
        peak = (base + rate * size) * np.exp(rng.normal(0, noise))
        return Peak(Configuration(recipe=name, dataset_bytes=size), int(peak))

    return [draw() for _ in range(traces)], draw


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_after_ten_traces_little_is_wasted_and_hardly_a_run_is_killed(noise):
    rng = np.random.default_rng(1)
    wasted, killed = [], []
    for number in range(60):
        peaks, draw = recipe(rng, f"r{number}", 10, noise)
        model = MemoryModel.fit(peaks, HOST_TERMS)
        for fresh in (draw() for _ in range(20)):
            reserved = model.upper_bytes(fresh.configuration)
            wasted.append(reserved / fresh.peak_bytes - 1)
            killed.append(fresh.peak_bytes > reserved)
    assert np.median(wasted) < 0.25
    assert np.mean(killed) < 1 / 50


def test_an_unknown_recipe_is_left_to_the_prior():
    model = MemoryModel.fit([], HOST_TERMS)
    assert model.upper_bytes(Configuration(recipe="x", dataset_bytes=GIB)) is None


def test_a_run_killed_at_a_size_gets_more_than_it_had():
    rng = np.random.default_rng(2)
    peaks, _ = recipe(rng, "r", 10, 0.02)
    asked = Configuration(recipe="r", dataset_bytes=2 * GIB)
    had = MemoryModel.fit(peaks, HOST_TERMS).upper_bytes(asked) * 2
    killed = Peak(asked, had, lower_bound=True)
    assert MemoryModel.fit([*peaks, killed], HOST_TERMS).upper_bytes(asked) > had


def test_a_lower_bound_below_what_is_needed_changes_nothing_much():
    rng = np.random.default_rng(3)
    peaks, draw = recipe(rng, "r", 12, 0.02)
    asked = draw().configuration
    before = MemoryModel.fit(peaks, HOST_TERMS).upper_bytes(asked)
    low = Peak(asked, before // 8, lower_bound=True)
    after = MemoryModel.fit([*peaks, low], HOST_TERMS).upper_bytes(asked)
    assert after == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("factor", [1000, 0.001])
def test_a_poisoned_trace_moves_its_own_recipe_by_less_than_a_tenth(factor):
    rng = np.random.default_rng(4)
    peaks, draw = recipe(rng, "r", 12, 0.03)
    asked = draw().configuration
    before = MemoryModel.fit(peaks, HOST_TERMS).upper_bytes(asked)
    bad = Peak(peaks[0].configuration, int(peaks[0].peak_bytes * factor))
    after = MemoryModel.fit([*peaks, bad], HOST_TERMS).upper_bytes(asked)
    assert after == pytest.approx(before, rel=0.1)


def test_a_poisoned_recipe_moves_no_other():
    rng = np.random.default_rng(5)
    peaks, draw = recipe(rng, "good", 12, 0.03)
    asked = draw().configuration
    other, _ = recipe(rng, "bad", 12, 0.03)
    poison = [Peak(p.configuration, p.peak_bytes * 1000) for p in other]
    before = MemoryModel.fit(peaks, HOST_TERMS).upper_bytes(asked)
    assert MemoryModel.fit([*peaks, *poison], HOST_TERMS).upper_bytes(asked) == before


def test_a_setting_that_matters_lowers_what_is_reserved():
    rng = np.random.default_rng(6)
    peaks = []
    for depth in (2.0, 4.0, 8.0, 16.0) * 4:
        size = int(rng.uniform(0.5, 2) * GIB)
        known = Configuration(recipe="r", dataset_bytes=size, settings={"--depth": depth})
        peaks.append(Peak(known, int(3 * size * depth**0.5 * np.exp(rng.normal(0, 0.02)))))
    model = MemoryModel.fit(peaks, HOST_TERMS)
    shallow, deep = (
        Configuration(recipe="r", dataset_bytes=GIB, settings={"--depth": d}) for d in (2.0, 16.0)
    )
    assert model.quantiles(deep, (0.5,))[0] / model.quantiles(shallow, (0.5,))[0] == pytest.approx(
        8**0.5, rel=0.1
    )


def long_and_short(factor):
    """Seven runs of a recipe, the last with eight times the sequence length and so much memory."""
    known = [Configuration(recipe="r", settings={"--seq-len": n}) for n in (512.0,) * 6 + (4096.0,)]
    peaks = [Peak(c, (500 + 5 * i) * MIB) for i, c in enumerate(known)]
    return [*peaks[:-1], Peak(known[-1], int(500 * factor * MIB))]


def test_a_peak_that_its_settings_explain_is_learnt_from():
    peaks = long_and_short(8.0)
    assert MemoryModel.fit(peaks, HOST_TERMS).recipes["r"].traces == 7
    assert MemoryModel.fit(peaks, HOST_TERMS).upper_bytes(peaks[-1].configuration) > 2 * GIB


def test_a_peak_that_no_setting_explains_is_not():
    assert MemoryModel.fit(long_and_short(1000.0), HOST_TERMS).recipes["r"].traces == 6


def test_far_from_what_was_seen_more_is_reserved_over_the_median():
    rng = np.random.default_rng(7)
    peaks, _ = recipe(rng, "r", 12, 0.03)
    model = MemoryModel.fit(peaks, HOST_TERMS)

    def margin(size):
        known = Configuration(recipe="r", dataset_bytes=size)
        return model.upper_bytes(known) / model.quantiles(known, (0.5,))[0]

    assert margin(256 * GIB) > 1.5 * margin(GIB)


def test_gpu_memory_of_an_unseen_network_follows_from_its_activations():
    rng = np.random.default_rng(8)
    peaks = []
    for network in range(12):
        params, activations = rng.uniform(5e6, 1e8), rng.uniform(2e6, 3e7)
        for batch in (8, 16, 32, 64):
            known = Configuration(
                network=f"n{network}", recipe=f"n{network}", batch_size=batch, params=params,
                activations=activations,
            )  # fmt: skip
            need = 600 * MIB + 16 * params + 8 * activations * batch
            peaks.append(Peak(known, int(need * np.exp(rng.normal(0, 0.05)))))
    model = MemoryModel.fit(peaks, GPU_TERMS)
    fresh = Configuration(recipe="new", batch_size=48, params=3e7, activations=1e7)
    need = 600 * MIB + 16 * 3e7 + 8 * 1e7 * 48
    assert model.quantiles(fresh, (0.5,))[0] == pytest.approx(need, rel=0.15)
    assert need < model.upper_bytes(fresh) < 1.6 * need


def test_many_runs_of_one_network_say_nothing_of_another():
    runs = [
        Peak(
            Configuration(network="n", recipe="n", batch_size=batch, params=3e7, activations=1e7),
            (800 + 80 * batch) * MIB,
        )
        for batch in (8, 16, 32, 64) * 3
    ]
    model = MemoryModel.fit(runs, GPU_TERMS)
    assert model.upper_bytes(runs[0].configuration) is not None
    other = Configuration(network="m", recipe="m", batch_size=8, params=3e8, activations=5e7)
    assert model.upper_bytes(other) is None


def test_what_is_stored_predicts_the_same():
    rng = np.random.default_rng(9)
    peaks, draw = recipe(rng, "r", 12, 0.03)
    model = MemoryModel.fit(peaks, HOST_TERMS)
    again = TypeAdapter(MemoryModel).validate_python(asdict(model))
    asked = draw().configuration
    assert again.upper_bytes(asked) == model.upper_bytes(asked)
