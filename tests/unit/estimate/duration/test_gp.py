import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from headway.estimate.duration import gp
from headway.estimate.duration.gp import GaussianProcess, left_out
from headway.estimate.duration.terms import embedded_kernel, plain_kernel
from headway.estimate.encode import Encoder
from headway.estimate.features import Configuration


def sample(n=60, seed=0):
    rng = np.random.default_rng(seed)
    known = [
        Configuration(
            network=f"n{rng.integers(3)}",
            gpu_type=f"g{rng.integers(2)}",
            batch_size=int(2 ** rng.integers(2, 7)),
            gpus=int(2 ** rng.integers(0, 3)),
        )
        for _ in range(n)
    ]
    encoder = Encoder.fit(known)
    x = encoder.encode(known)
    y = x[:, 0] + 0.5 * x[:, 1] * x[:, 2] + rng.normal(0, 0.05, n)
    return encoder, x, y


def kernels():
    encoder, x, y = sample()
    return [plain_kernel(encoder, x), *embedded_kernel(encoder, x, 0)], x, y


@pytest.mark.parametrize("which", [0, 1])
def test_the_gradient_is_that_of_the_covariance(which):
    every, x, _ = kernels()
    kernel = every[which]
    straight, apart = kernel._straight(x, x), kernel._apart(x, x)
    _, derivatives, _ = kernel._sum(straight, apart, gradient=True)
    for i, derivative in enumerate(derivatives):
        step = np.zeros_like(kernel.theta)
        step[i] = 1e-5
        up, down = (replace(kernel, theta=kernel.theta + s)(x, x) for s in (step, -step))
        assert (up - down) / 2e-5 == pytest.approx(derivative, abs=1e-5)


def test_the_pull_on_coordinates_is_the_slope_of_the_covariance():
    every, x, _ = kernels()
    kernel = every[1]
    weights = np.random.default_rng(1).normal(size=(len(x), len(x)))
    weights = weights + weights.T
    _, _, pulls = kernel._sum(kernel._straight(x, x), kernel._apart(x, x), gradient=True)
    from headway.estimate.duration.kernel import _slope_of_places

    embedding = kernel.embeddings[0]
    found = _slope_of_places(embedding, embedding.place(x), embedding.index(x), weights * pulls[0])
    for i in (0, 3, embedding.places.size - 1):
        moved = []
        for step in (1e-5, -1e-5):
            places = embedding.places.copy().ravel()
            places[i] += step
            changed = replace(embedding, places=places.reshape(embedding.places.shape))
            other = replace(kernel, embeddings=(changed, *kernel.embeddings[1:]))
            moved.append(0.5 * float(np.sum(weights * other(x, x))))
        assert (moved[0] - moved[1]) / 2e-5 == pytest.approx(found[i], rel=1e-3, abs=1e-5)


def test_the_diagonal_is_the_variance():
    every, x, _ = kernels()
    for kernel in every:
        assert np.diag(kernel(x, x)) == pytest.approx(kernel.variance(x), rel=1e-4)


def test_left_out_errors_are_those_of_a_process_that_never_saw_the_row():
    every, x, y = kernels()
    kernel = every[0]
    error, deviation = left_out(kernel, x, y - y.mean())
    for i in (0, 7, 31):
        rest = np.arange(len(x)) != i
        process = GaussianProcess.fit(kernel, x[rest], y[rest], np.random.default_rng(0))
        mean, spread = process.predict(x[[i]])
        assert error[i] == pytest.approx(y[i] - mean[0], abs=0.02)
        assert deviation[i] == pytest.approx(spread[0], rel=0.05)


def test_a_subset_of_inducing_points_predicts_nearly_as_well(monkeypatch):
    encoder, x, y = sample(300)
    kernel = plain_kernel(encoder, x)
    rng = np.random.default_rng(0)
    exact, _ = GaussianProcess.fit(kernel, x, y, rng).predict(x)
    monkeypatch.setattr(gp, "EXACT", 60)
    monkeypatch.setattr(gp, "FEW", 60)
    process = GaussianProcess.fit(kernel, x, y, rng)
    assert len(process.points) == 60
    assert np.abs(process.predict(x)[0] - exact).mean() < 0.15


def test_what_is_unknown_is_as_far_from_all_that_is_known():
    known = [Configuration(network="a", batch_size=b) for b in (8, 16, 32)]
    unknown = Configuration(network="a")
    encoder = Encoder.fit([*known, unknown])
    x = encoder.encode([*known, unknown])
    kernel = plain_kernel(encoder, x)
    assert np.linalg.eigvalsh(kernel(x, x)).min() > -1e-9
    assert kernel(x, x)[3, 1] < kernel(x, x)[1, 1]


def test_thousands_of_traces_are_fitted_in_blocks(monkeypatch):
    monkeypatch.setattr(gp, "EXACT", 100)
    monkeypatch.setattr(gp, "FEW", 100)
    encoder, x, y = sample(n=1500)
    kernel = plain_kernel(encoder, x)
    whole = GaussianProcess.fit(kernel, x, y, np.random.default_rng(0))
    monkeypatch.setattr(gp, "BLOCK", 70)
    parts = GaussianProcess.fit(kernel, x, y, np.random.default_rng(0))
    assert parts.weights == pytest.approx(whole.weights, rel=1e-6, abs=1e-9)
    means, deviations = parts.predict(x)
    assert means == pytest.approx(whole.predict(x[:50])[0].tolist() + means[50:].tolist())
    assert len(deviations) == len(x)


def test_what_a_fit_holds_at_once_does_not_grow_with_the_traces(monkeypatch):
    monkeypatch.setattr(gp, "FEW", 100)
    monkeypatch.setattr(gp, "BLOCK", 500)
    encoder, x, y = sample(n=12_000)
    kernel = plain_kernel(encoder, x)
    peaks = []
    for n in (4000, 12_000):
        tracemalloc.start()
        GaussianProcess.fit(kernel, x[:n], y[:n], np.random.default_rng(0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 1e6
