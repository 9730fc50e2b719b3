"""Gaussian processes with one length scale for each factor of each term.

The kernel is a sum of terms over chosen factors (and a linear part), so that
what two configurations share, be it the network, the GPU type, or the batch
size on that GPU type, is learnt from every trace that shares it. Formulas:
Rasmussen and Williams, *Gaussian Processes for Machine Learning*, algorithm
2.1 and equations 5.9-5.12; above `EXACT` traces the projected process of
section 8.3.4, on a random subset.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from headway.estimate.encode import UNSEEN, Floats, State

EXACT = 1200
"""Up to so many traces nothing is approximated; above, so many inducing points."""
TUNED_ON = 500
"""Length scales are fitted on at most so many traces."""
_JITTER = 1e-6


@dataclass(frozen=True)
class Kernel:
    """A sum of products: linear in some columns, Matérn 3/2 in the terms."""

    categorical: tuple[bool, ...]
    """For each column, whether it is a category."""
    linear: tuple[int, ...]
    """Columns with a straight-line effect (a constant is always there)."""
    terms: tuple[tuple[int, ...], ...]
    """Columns of each term."""
    centre: Floats
    """For each column, where its straight line is zero; stands in for what is unknown."""
    theta: Floats
    """Log scales: constant, linear columns, for each term its size and lengths, noise."""

    def state(self) -> State:
        """The kernel as plain data."""
        return {
            "categorical": self.categorical,
            "linear": self.linear,
            "terms": self.terms,
            "centre": self.centre,
            "theta": self.theta,
        }

    @classmethod
    def from_state(cls, state: State) -> "Kernel":
        """The kernel that gave *state*."""
        return cls(
            categorical=tuple(state["categorical"]),
            linear=tuple(state["linear"]),
            terms=tuple(tuple(term) for term in state["terms"]),
            centre=state["centre"],
            theta=state["theta"],
        )

    def distances(self, a: Floats, b: Floats) -> list[Floats]:
        """Squared distance by column, each of shape (len(a), len(b))."""
        found = []
        for column, categorical in enumerate(self.categorical):
            left, right = a[:, column][:, None], b[:, column][None, :]
            if categorical:
                found.append(((left != right) | (left == UNSEEN)).astype(np.float64))
                continue
            gap = self._filled(a, column)[:, None] - self._filled(b, column)[None, :]
            found.append(gap**2 + (np.isnan(left) != np.isnan(right)))
        return found

    def _filled(self, a: Floats, column: int) -> Floats:
        values = a[:, column]
        return np.where(np.isnan(values), self.centre[column], values)

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """Covariance of the noise-free values at the rows of *a* and *b*."""
        return self._sum(a, b, gradient=False)[0]

    def with_gradient(self, a: Floats) -> tuple[Floats, list[Floats]]:
        """Covariance of *a* with itself and its derivative by each of `theta`, noise apart."""
        return self._sum(a, a, gradient=True)

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return float(np.exp(2 * self.theta[-1])) + _JITTER

    def _sum(self, a: Floats, b: Floats, *, gradient: bool) -> tuple[Floats, list[Floats]]:
        scales, position = np.exp(self.theta), 1 + len(self.linear)
        parts = [np.full((len(a), len(b)), scales[0] ** 2)]
        for i, column in enumerate(self.linear, 1):
            left, right = (self._filled(each, column) - self.centre[column] for each in (a, b))
            parts.append(scales[i] ** 2 * np.outer(left, right))
        derivatives = [2 * part for part in parts] if gradient else []
        apart = self.distances(a, b)
        for term in self.terms:
            size = scales[position] ** 2
            lengths = scales[position + 1 : position + 1 + len(term)]
            position += 1 + len(term)
            each = [apart[c] / (2 * length**2) for c, length in zip(term, lengths, strict=True)]
            reach = np.sqrt(6 * np.sum(each, axis=0) + 1e-12)
            decay = size * np.exp(-reach)
            parts.append((1 + reach) * decay)
            if gradient:
                derivatives += [2 * parts[-1]] + [6 * decay * e for e in each]
        return np.sum(parts, axis=0), derivatives

    def tuned(self, x: Floats, y: Floats, rng: np.random.Generator, iterations: int) -> "Kernel":
        """The kernel with the scales under which *y* at *x* is most likely.

        A wide normal prior around the present scales keeps the factors that
        the traces say nothing about where they are.
        """
        if len(x) > TUNED_ON:
            chosen = rng.choice(len(x), TUNED_ON, replace=False)
            x, y = x[chosen], y[chosen]
        start = self.theta

        def badness(theta: Floats) -> tuple[float, Floats]:
            kernel = replace(self, theta=theta)
            covariance, derivatives = kernel.with_gradient(x)
            try:
                factor = cholesky(covariance + kernel.noise * np.eye(len(x)), lower=True)
            except np.linalg.LinAlgError:
                return 1e10, np.zeros_like(theta)
            alpha = cho_solve((factor, True), y)
            inverse = cho_solve((factor, True), np.eye(len(x)))
            weights = inverse - np.outer(alpha, alpha)
            slope = [0.5 * float(np.sum(weights * d)) for d in derivatives]
            slope.append(float(np.trace(weights)) * (kernel.noise - _JITTER))
            value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor)).sum())
            away = (theta - start) / 2.0
            return value + 0.5 * float(away @ away), np.array(slope) + away / 2.0

        found = minimize(
            badness, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations}
        )
        return replace(self, theta=np.asarray(found.x, dtype=np.float64))


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted process: everything that a prediction needs, as arrays."""

    kernel: Kernel
    mean: float
    points: Floats
    """Inducing points: the traces themselves, or a subset of them."""
    weights: Floats
    """Prediction = mean + k(x, points) @ weights."""
    root: Floats
    """Lower Cholesky factor of k(points, points)."""
    inner: Floats
    """Lower Cholesky factor of noise · 1 + V Vᵀ with V = root⁻¹ k(points, x)."""

    def state(self) -> State:
        """The process as plain data."""
        return {
            "kernel": self.kernel.state(),
            "mean": self.mean,
            "points": self.points,
            "weights": self.weights,
            "root": self.root,
            "inner": self.inner,
        }

    @classmethod
    def from_state(cls, state: State) -> "GaussianProcess":
        """The process that gave *state*."""
        return cls(**{**state, "kernel": Kernel.from_state(state["kernel"])})

    @classmethod
    def fit(
        cls, kernel: Kernel, x: Floats, y: Floats, rng: np.random.Generator
    ) -> "GaussianProcess":
        """Condition *kernel* on the values *y*, shape (n,), at the rows of *x*."""
        points = x if len(x) <= EXACT else x[rng.choice(len(x), EXACT, replace=False)]
        covariance = kernel(points, points)
        root = cholesky(covariance + _JITTER * np.eye(len(points)), lower=True)
        projected = solve_triangular(root, kernel(points, x), lower=True)
        inner = cholesky(kernel.noise * np.eye(len(points)) + projected @ projected.T, lower=True)
        mean = float(np.mean(y))
        weights = solve_triangular(
            root.T, cho_solve((inner, True), projected @ (y - mean)), lower=False
        )
        return cls(kernel, mean, points, weights, root, inner)

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new measurement at each row of *x*."""
        across = self.kernel(self.points, x)
        projected = solve_triangular(self.root, across, lower=True)
        explained = solve_triangular(self.inner, projected, lower=True)
        own = np.array([self.kernel(row[None], row[None])[0, 0] for row in x])
        variance = own - np.sum(projected**2, axis=0)
        variance += self.kernel.noise * (1 + np.sum(explained**2, axis=0))
        return self.mean + across.T @ self.weights, np.sqrt(np.maximum(variance, 1e-12))

    def left_out(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Error and standard deviation at each of the traces it was fitted on, had it not seen it.

        The process is a linear smoother, ŷ = H y, so the error without trace
        i is (y - ŷ)ᵢ / (1 - Hᵢᵢ).
        """
        projected = solve_triangular(self.root, self.kernel(self.points, x), lower=True)
        explained = solve_triangular(self.inner, projected, lower=True)
        leverage = np.minimum(np.sum(explained**2, axis=0), 1 - 1e-9)
        mean, _ = self.predict(x)
        return (y - mean) / (1 - leverage), np.sqrt(self.kernel.noise / (1 - leverage))
