"""Batch sizes, relative to what is usual for the network.

People choose batches to fill the GPU: 64 is large for one network and small
for another. Across networks only the distance from the usual batch compares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.estimate.encode import Encoder, Floats, log2
from headway.estimate.features import Configuration


@dataclass(frozen=True)
class Batches:
    """The usual batch of each network, as base-2 logarithms."""

    usual: dict[str, float]
    low: float
    high: float
    """Smallest and largest batch that any network had."""

    @classmethod
    def fit(cls, configurations: Sequence[Configuration]) -> "Batches":
        """Learn what is usual from *configurations*."""
        by_network: dict[str, set[float]] = {}
        for c in configurations:
            if c.batch_size:
                by_network.setdefault(c.network, set()).add(log2(c.batch_size))
        every = [b for each in by_network.values() for b in each] or [0.0]
        # The middle of the sizes tried, however often each was run.
        usual = {name: sum(sorted(each)) / len(each) for name, each in by_network.items()}
        return cls(usual, min(every), max(every))

    def relative(
        self, encoder: Encoder, x: Floats, configurations: Sequence[Configuration]
    ) -> Floats:
        """*x* with its batch column made relative to the network's usual batch.

        For a network that no trace had, the mean of all is taken as usual; a
        batch beyond all that were seen then tells nothing, and becomes unknown.
        """
        if "batch_size" not in encoder.columns:
            return x
        column = encoder.columns.index("batch_size")
        middle = sum(self.usual.values()) / max(len(self.usual), 1)
        found = x.copy()
        for row, c in enumerate(configurations):
            value = x[row, column]
            if c.network not in self.usual and not self.low <= value <= self.high:
                value = math.nan
            found[row, column] = np.round(value - self.usual.get(c.network, middle), 9)
        return found
