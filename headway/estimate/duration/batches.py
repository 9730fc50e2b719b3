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
    own: float = 1.0
    """Of how far a new network's batch lies from the mean of all, the share that is its own doing;
    the rest is what is usual for it."""

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
        within = [float(np.var([*each], ddof=1)) for each in by_network.values() if len(each) > 1]
        between = float(np.var([*usual.values()], ddof=1)) if len(usual) > 1 else 0.0
        tried = float(np.mean(within)) if within else 0.0
        own = tried / (tried + between) if tried + between else 1.0
        return cls(usual, min(every), max(every), own)

    def relative(
        self, encoder: Encoder, x: Floats, configurations: Sequence[Configuration]
    ) -> Floats:
        """*x* with its batch column made relative to the network's usual batch.

        For a network that no trace had, relative to the mean of all; of one without facts only the
        share of it that is expected: 2 images are few for networks that are run with 64, but most
        of what tells its batch from theirs is that it is another network. A batch beyond all that
        were seen tells nothing, and becomes unknown.
        """
        if "batch_size" not in encoder.columns:
            return x
        column = encoder.columns.index("batch_size")
        middle = sum(self.usual.values()) / max(len(self.usual), 1)
        found = x.copy()
        for row, c in enumerate(configurations):
            value = x[row, column]
            if c.network in self.usual:
                away = value - self.usual[c.network]
            else:
                near = value - middle if self.low <= value <= self.high else math.nan
                away = near if c.flops else self.own * near
            found[row, column] = np.round(away, 9)
        return found
