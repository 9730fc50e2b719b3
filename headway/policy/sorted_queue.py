"""The queue, kept sorted as runs come and go: its front costs the same however long it is."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from headway.policy.fit import Ask
from headway.policy.order import Rank, bands, due_first, rank
from headway.policy.settings import PolicySettings

_NO_BANDS: dict[str, int] = {}


@dataclass(slots=True)
class SortedQueue:
    """Waiting runs by priority and team, each group sorted by rank."""

    settings: PolicySettings
    groups: dict[tuple[int, str], list[tuple[Rank, Ask]]] = field(default_factory=dict)
    """By -priority and team."""
    work_s: int = 0
    """Predicted GPU-seconds of them all; whole, so that the sum does not depend on the order."""

    def add(self, ask: Ask) -> None:
        """*ask* joins its group."""
        self.work_s += round(ask.work_s)
        group = self.groups.setdefault((-ask.priority, ask.team), [])
        insort(group, (rank(ask, _NO_BANDS, self.settings), ask))

    def remove(self, ask: Ask) -> None:
        """*ask* leaves its group."""
        self.work_s -= round(ask.work_s)
        group = self.groups[-ask.priority, ask.team]
        at = bisect_left(group, rank(ask, _NO_BANDS, self.settings), key=lambda entry: entry[0])
        del group[at]

    def front(self, usage: Mapping[str, float], due: Sequence[Ask]) -> list[Ask]:
        """The first `window` runs, in the order in which a decision takes them.

        Args:
            usage: Decayed GPU-seconds of each team that waits or has run.
            due: Those overtaken `overtake_limit` times, or marked to have waited long: they
                go first.
        """
        window = self.settings.window
        above = bands(usage, self.settings)

        def level(key: tuple[int, str]) -> tuple[int, int]:
            return key[0], above.get(key[1], 0)

        first = list(due)
        known = {ask.run_id for ask in first}
        for _, keys in groupby(sorted(filter(self.groups.get, self.groups), key=level), key=level):
            merged = heapq.merge(*(self.groups[key] for key in keys), key=lambda entry: entry[0])
            for _, ask in islice(merged, window + len(known)):
                if ask.run_id not in known:
                    first.append(ask)
            if len(first) >= window + len(known):
                break
        return due_first(first, above, self.settings)[:window]
