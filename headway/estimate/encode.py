"""Configurations as numbers: one column a factor, and what each factor is.

A kernel asks only how far apart two configurations are in one factor. So a
category becomes an integer code, a quantity its base-2 logarithm, and what is
unknown becomes NaN, which is at a distance of its own from all that is known.
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from headway.estimate.features import Configuration


def _packed(array: NDArray[Any]) -> tuple[tuple[int, ...], str]:
    return array.shape, b64encode(np.asarray(array, dtype=np.float64).tobytes()).decode()


def _unpacked(given: Any) -> NDArray[np.float64]:
    if isinstance(given, np.ndarray):
        return given
    shape, data = given
    return np.frombuffer(b64decode(data)).reshape(shape)


Floats = Annotated[
    NDArray[np.float64], PlainValidator(_unpacked), PlainSerializer(_packed, when_used="json")
]
"""An array; in the JSON of `store` its shape and its bytes."""

UNSEEN = -1.0
"""Code of a category that no trace had."""

_CATEGORIES = ("network", "gpu_type", "beside", "spread", "precision", "framework", "recipe")
_QUANTITIES = (
    *("batch_size", "gpus", "nodes", "data_threads", "cpus", "dataset_bytes", "dataset_samples"),
    *("beside_batch_size", "epochs", "flops", "params", "activations", "layers"),
    *("gpu_flops_per_s", "gpu_bandwidth_bytes_per_s"),
)


def log2(value: float | None) -> float:
    """Base-2 logarithm; NaN when unknown. Below a half it is that of one, below zero as far down.

    So it rises all the way: -1 for anything from -0.5 to 0.5, -3 for -2.
    """
    if value is None or math.isnan(value):
        return math.nan
    return math.log2(max(value, 0.5)) if value >= 0 else -2.0 - math.log2(max(-value, 0.5))


@dataclass(frozen=True)
class Encoder:
    """Turns configurations into rows of numbers, always with the same columns."""

    categories: dict[str, tuple[str, ...]]
    """Levels of each category, in the order of their codes."""
    quantities: tuple[str, ...]
    """Quantities (settings begin with ``--``), each a column after the categories."""

    @classmethod
    def fit(cls, configurations: Sequence[Configuration]) -> "Encoder":
        """An encoder of the factors in which *configurations* differ."""
        categories: dict[str, tuple[str, ...]] = {}
        partitions = set()
        for name in _CATEGORIES:
            values = [_category(c, name) for c in configurations]
            first = {value: i for i, value in reversed(list(enumerate(values)))}
            partition = tuple(first[value] for value in values)
            # A recipe that only repeats the network says nothing more.
            if len(first) > 1 and partition not in partitions:
                categories[name] = tuple(sorted(first))
            partitions.add(partition)
        settings = sorted({name for c in configurations for name in c.settings})
        varying = [
            name
            for name in (*_QUANTITIES, *settings)
            if len({_quantity(c, name) for c in configurations} - {None}) > 1
        ]
        return cls(categories, tuple(varying))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `encode`."""
        return (*self.categories, *self.quantities)

    def encode(self, configurations: Sequence[Configuration]) -> Floats:
        """One row a configuration, shape (n, columns)."""
        codes = {
            name: {level: float(i) for i, level in enumerate(levels)}
            for name, levels in self.categories.items()
        }
        rows = [
            [codes[name].get(_category(c, name), UNSEEN) for name in self.categories]
            + [log2(_quantity(c, name)) for name in self.quantities]
            for c in configurations
        ]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.columns))


def centre_of(x: Floats) -> Floats:
    """Mean of what is known in each column; 0 where nothing is."""
    known = ~np.isnan(x)
    total = np.where(known, x, 0.0).sum(axis=0)
    return np.asarray(total / np.maximum(known.sum(axis=0), 1), dtype=np.float64)


def _category(configuration: Configuration, name: str) -> str:
    if name == "spread":
        return "spread" if configuration.nodes > 1 else "packed"
    return str(getattr(configuration, name))


def _quantity(configuration: Configuration, name: str) -> float | None:
    """The quantity called *name*, or the setting when no quantity is called so."""
    found: float | None = (
        getattr(configuration, name) if name in _QUANTITIES else configuration.settings.get(name)
    )
    return found
