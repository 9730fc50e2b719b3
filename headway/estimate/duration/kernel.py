"""How alike two configurations are: a sum of products over their factors.

Each term is a Matérn 3/2 kernel with a length scale of its own for each of its
factors; what two configurations share, be it the network, the GPU type or the
batch size on that GPU type, is so learnt from every trace that shares it.
A factor is a column, or a group of columns whose combinations (a GPU type in
a certain number, say) are given coordinates that are learnt: two systems that
behave alike end up close to each other.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky

from headway.estimate.encode import UNSEEN, Floats

TUNED_ON = 450
"""Scales are fitted on at most so many traces."""
JITTER = 1e-6
_FREEDOM = 0.5
"""How far learnt coordinates stray from where they start (standard deviation)."""


@dataclass(frozen=True)
class Embedding:
    """Coordinates for combinations of some columns; a combination that no trace had has none."""

    columns: tuple[int, ...]
    levels: Floats
    """Combinations that traces had, shape (levels, columns)."""
    places: Floats
    """Where each lies, shape (levels, dimensions)."""

    @classmethod
    def fit(
        cls, columns: tuple[int, ...], x: Floats, categorical: tuple[bool, ...], seed: int
    ) -> "Embedding":
        """Where what *x* has in *columns* starts: names far apart, sizes in line."""
        rng = np.random.default_rng(seed)
        levels = np.unique(np.nan_to_num(x[:, columns], nan=UNSEEN), axis=0)
        parts = []
        for column, values in zip(columns, levels.T, strict=True):
            if categorical[column]:
                axis = rng.normal(size=(int(values.max()) + 1, 3))
                parts.append(axis[values.astype(int)])
            else:
                parts.append(0.5 * values[:, None])
        return cls(columns, levels, np.hstack(parts))

    def index(self, x: Floats) -> "np.ndarray[Any, np.dtype[np.intp]]":
        """Number of the level of each row of *x*; -1 for a combination no trace had."""
        known = {tuple(level): i for i, level in enumerate(self.levels)}
        rows = np.nan_to_num(x[:, self.columns], nan=UNSEEN)
        return np.array([known.get(tuple(row), -1) for row in rows], dtype=np.intp)

    def place(self, x: Floats) -> Floats:
        """Coordinates of each row of *x*, which has known combinations alone."""
        return np.asarray(self.places[self.index(x)], dtype=np.float64)


@dataclass(frozen=True)
class Kernel:
    """A straight-line part and a sum of terms, with their scales."""

    categorical: tuple[bool, ...]
    """For each column, whether it is a category."""
    linear: tuple[int, ...]
    """Columns with a straight-line effect (a constant is always there)."""
    terms: tuple[tuple[int, ...], ...]
    """Factors of each term: columns, then embeddings numbered on from them."""
    centre: Floats
    """For each column, where its straight line is zero; stands in for what is unknown."""
    theta: Floats
    """Log scales: constant, linear columns, for each term its size and lengths, noise."""
    embeddings: tuple[Embedding, ...] = ()

    def knows(self, x: Floats) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """For each row of *x*, whether all its combinations have learnt coordinates."""
        known = np.ones(len(x), dtype=bool)
        for embedding in self.embeddings:
            known &= embedding.index(x) >= 0
        return known

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """Covariance of the noise-free values at the rows of *a* and *b*."""
        total, _, _ = self._sum(self._straight(a, b), self._apart(a, b), gradient=False)
        return total

    def variance(self, x: Floats) -> Floats:
        """Prior variance at each row of *x*: the diagonal of ``self(x, x)``."""
        scales = np.exp(2 * self.theta)
        ends = np.cumsum([1 + len(self.linear), *(1 + len(term) for term in self.terms)])
        lines = self._line(x) ** 2 @ scales[1 : 1 + len(self.linear)]
        return np.asarray(scales[0] + scales[ends[:-1]].sum() + lines, dtype=np.float64)

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return float(np.exp(2 * self.theta[-1])) + JITTER

    def tuned(self, x: Floats, y: Floats, rng: np.random.Generator, iterations: int) -> "Kernel":
        """The kernel with the scales and coordinates under which *y* at *x* is most likely.

        A normal prior around where they start keeps those that the traces say
        nothing about where they are.
        """
        from scipy.optimize import minimize  # noqa: PLC0415 - 0.2 s that predicting never needs

        if len(x) > TUNED_ON:
            chosen = rng.choice(len(x), TUNED_ON, replace=False)
            x, y = x[chosen], y[chosen]
        # Each pair once: a covariance is symmetric, and to fill it in is most of the work.
        one, other = np.triu_indices(len(x))
        twice = np.where(one == other, 1.0, 2.0)
        straight = [each[one, other] for each in self._straight(x, x)]
        fixed = [each[one, other] for each in self._apart(x, x)[: len(self.categorical)]]
        rows = [e.index(x) for e in self.embeddings]
        start = self._packed()
        spread = np.concatenate(
            [np.full(len(self.theta), 2.0), np.full(len(start) - len(self.theta), _FREEDOM)]
        )

        def badness(packed: Floats) -> tuple[float, Floats]:
            kernel = self._with(packed)
            places = [e.places[row] for e, row in zip(kernel.embeddings, rows, strict=True)]
            apart = [*fixed, *(_squared(place, place)[one, other] for place in places)]
            pairs, derivatives, pulls = kernel._sum(straight, apart, gradient=True)  # noqa: SLF001
            covariance = kernel.noise * np.eye(len(x))
            covariance[other, one] += pairs
            try:
                factor = cholesky(covariance, lower=True)  # it reads the lower half alone
            except np.linalg.LinAlgError:
                return 1e10, np.zeros_like(packed)
            alpha = cho_solve((factor, True), y)
            weights = cho_solve((factor, True), np.eye(len(x))) - np.outer(alpha, alpha)
            weighed = 0.5 * twice * weights[one, other]
            slopes = [float(weighed @ d) for d in derivatives]
            slopes.append(float(np.trace(weights)) * (kernel.noise - JITTER))
            for e, place, row, pull in zip(kernel.embeddings, places, rows, pulls, strict=True):
                drawn = np.zeros_like(weights)
                drawn[one, other] = drawn[other, one] = weights[one, other] * pull
                slopes += list(_slope_of_places(e, place, row, drawn))
            value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor)).sum())
            away = (packed - start) / spread
            return value + 0.5 * float(away @ away), np.array(slopes) + away / spread

        found = minimize(
            badness, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations}
        )
        return self._with(np.asarray(found.x, dtype=np.float64))

    def _packed(self) -> Floats:
        return np.concatenate([self.theta, *(e.places.ravel() for e in self.embeddings)])

    def _with(self, packed: Floats) -> "Kernel":
        position, embeddings = len(self.theta), []
        for e in self.embeddings:
            places = packed[position : position + e.places.size].reshape(e.places.shape)
            embeddings.append(replace(e, places=places))
            position += e.places.size
        return replace(self, theta=packed[: len(self.theta)], embeddings=tuple(embeddings))

    def _line(self, x: Floats) -> Floats:
        """Where each row lies on the straight lines, shape (n, linear)."""
        return np.nan_to_num(x - self.centre, nan=0.0)[:, list(self.linear)]

    def _straight(self, a: Floats, b: Floats) -> list[Floats]:
        lines = zip(self._line(a).T, self._line(b).T, strict=True)
        return [np.ones((len(a), len(b))), *(np.outer(left, right) for left, right in lines)]

    def _apart(self, a: Floats, b: Floats) -> list[Floats]:
        """Squared distance by factor, each of shape (len(a), len(b))."""
        found = []
        for column, categorical in enumerate(self.categorical):
            left, right = a[:, column][:, None], b[:, column][None, :]
            if categorical:
                found.append(((left != right) | (left == UNSEEN)).astype(np.float64))
                continue
            # What is unknown lies at the centre, and one away from all that is known.
            gap = np.nan_to_num(left - self.centre[column]) - np.nan_to_num(
                right - self.centre[column]
            )
            found.append(gap**2 + (np.isnan(left) != np.isnan(right)))
        return [*found, *(_squared(e.place(a), e.place(b)) for e in self.embeddings)]

    def _sum(
        self, straight: list[Floats], apart: list[Floats], *, gradient: bool
    ) -> tuple[Floats, list[Floats], list[Floats]]:
        """Covariance, its derivative by each of `theta` but the noise, and by each embedding."""
        scales, position = np.exp(self.theta), len(straight)
        total = np.zeros_like(straight[0])
        derivatives: list[Floats] = []
        pulls = [np.zeros_like(total) for _ in self.embeddings]
        for part, scale in zip(straight, scales, strict=False):
            total += scale**2 * part
            if gradient:
                derivatives.append(2 * scale**2 * part)
        for term in self.terms:
            lengths = scales[position + 1 : position + 1 + len(term)]
            each = [apart[f] / (2 * length**2) for f, length in zip(term, lengths, strict=True)]
            reach = np.sqrt(6 * np.sum(each, axis=0) + 1e-12)
            decay = scales[position] ** 2 * np.exp(-reach)
            part = (1 + reach) * decay
            total += part
            position += 1 + len(term)
            if gradient:
                derivatives += [2 * part, *(6 * decay * e for e in each)]
                for factor, length in zip(term, lengths, strict=True):
                    if factor >= len(self.categorical):
                        pulls[factor - len(self.categorical)] -= 3 * decay / length**2
        return total, derivatives, pulls


def _squared(a: Floats, b: Floats) -> Floats:
    """Squared Euclidean distances between the rows of *a* and those of *b*."""
    # Column by column: exact zeros, and without the import of scipy.spatial.
    total = np.zeros((len(a), len(b)))
    for left, right in zip(a.T, b.T, strict=True):
        total += (left[:, None] - right[None, :]) ** 2
    return total


def _slope_of_places(
    embedding: Embedding,
    places: Floats,
    index: "np.ndarray[Any, np.dtype[np.intp]]",
    pull: Floats,
) -> Floats:
    """Slope of the badness by each coordinate, flat: rows that share a level pull together."""
    rows = places * pull.sum(axis=1)[:, None] - pull @ places
    slope = np.zeros_like(embedding.places)
    np.add.at(slope, index, rows)
    return slope.ravel()
