"""Gaussian processes: what the kernel makes of the traces.

Formulas: Rasmussen and Williams, *Gaussian Processes for Machine Learning*,
the projected process of section 8.3.4, which is exact while every trace is an
inducing point; left-out errors after equations 5.10-5.12.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from headway.estimate.duration.kernel import JITTER, Kernel
from headway.estimate.encode import Floats

EXACT = 1000
"""Up to so many traces nothing is approximated."""
FEW = 600
"""Inducing points of the largest sets, so that a thousand predictions stay under a second."""

BLOCK = 2000
"""Rows that are compared with the inducing points at once: memory does not grow with the traces."""


def inducing(n: int) -> int:
    """How many of *n* traces are inducing points."""
    return min(n, EXACT) if n <= 3 * EXACT else FEW


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

    @classmethod
    def fit(
        cls, kernel: Kernel, x: Floats, y: Floats, rng: np.random.Generator
    ) -> "GaussianProcess":
        """Condition *kernel* on the values *y*, shape (n,), at the rows of *x*."""
        count = inducing(len(x))
        points = x if count == len(x) else x[rng.choice(len(x), count, replace=False)]
        covariance = kernel(points, points)
        root = cholesky(covariance + JITTER * np.eye(len(points)), lower=True)
        mean = float(np.mean(y))
        inner, right = kernel.noise * np.eye(len(points)), np.zeros(len(points))
        for at in range(0, len(x), BLOCK):
            rows = slice(at, at + BLOCK)
            projected = solve_triangular(root, kernel(points, x[rows]), lower=True)
            inner += projected @ projected.T
            right += projected @ (y[rows] - mean)
        inner = cholesky(inner, lower=True)
        weights = solve_triangular(root.T, cho_solve((inner, True), right), lower=False)
        return cls(kernel, mean, points, weights, root, inner)

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new measurement at each row of *x*."""
        if len(x) > BLOCK:
            blocks = [self.predict(x[at : at + BLOCK]) for at in range(0, len(x), BLOCK)]
            means, deviations = zip(*blocks, strict=True)
            return np.concatenate(means), np.concatenate(deviations)
        across = self.kernel(self.points, x)
        projected = solve_triangular(self.root, across, lower=True)
        explained = solve_triangular(self.inner, projected, lower=True)
        variance = self.kernel.variance(x) - np.sum(projected**2, axis=0)
        variance += self.kernel.noise * (1 + np.sum(explained**2, axis=0))
        return self.mean + across.T @ self.weights, np.sqrt(np.maximum(variance, 1e-12))


def left_out(
    kernel: Kernel, x: Floats, y: Floats, groups: Floats | None = None
) -> tuple[Floats, Floats]:
    """Error and standard deviation at each row of *x*, had its whole group not been seen.

    Args:
        kernel: Tuned already; the scales are not tuned again without the group.
        x: At most a few thousand rows, shape (n, columns).
        y: Values, shape (n,).
        groups: A number for each row; each row is a group of its own when None.
    """
    inverse = np.linalg.inv(kernel(x, x) + kernel.noise * np.eye(len(x)))
    alpha = inverse @ (y - y.mean())
    if groups is None:
        diagonal = np.maximum(np.diag(inverse), 1e-12)
        return alpha / diagonal, 1 / np.sqrt(diagonal)
    error, deviation = np.zeros(len(x)), np.zeros(len(x))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        block = np.linalg.inv(inverse[np.ix_(rows, rows)])
        error[rows] = block @ alpha[rows]
        deviation[rows] = np.sqrt(np.maximum(np.diag(block), 1e-12))
    return error, deviation
