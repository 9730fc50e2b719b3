"""The line, kept sorted as runs come and go: its front costs the same however long it is."""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from headway.policy.board import Ask
from headway.policy.order import Rank, bands, due_first, rank, waited_long
from headway.policy.settings import PolicySettings

_NO_BANDS: dict[str, int] = {}


@dataclass(slots=True)
class Groups:
    """Waiting runs by priority and team, each group sorted by rank."""

    settings: PolicySettings
    groups: dict[tuple[int, str], list[tuple[Rank, Ask]]] = field(default_factory=dict)
    """By -priority and team."""
    work_s: int = 0
    """Predicted GPU-seconds of them all; whole, so that the sum does not depend on the order."""

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups.values())

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
        """The first `window` runs, in the order in which a decision looks at them.

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


@dataclass(slots=True)
class Line:
    """Waiting runs by rank, and by submission for those that were overtaken most.

    Runs must be added in the order of their submission. How often each was
    overtaken follows from counting: of the runs that came later, those who
    do not wait any more have started.
    """

    settings: PolicySettings
    groups: Groups = field(init=False)
    by_age: dict[int, dict[str, tuple[int, Ask]]] = field(default_factory=dict)
    """By -priority: waiting runs by submission, each with its number."""
    arrived: dict[int, int] = field(default_factory=dict)
    long_waited: list[Ask] = field(default_factory=list)
    """Those that the latest front found to have waited long."""

    def __post_init__(self) -> None:
        self.groups = Groups(self.settings)

    def __len__(self) -> int:
        return len(self.groups)

    def add(self, ask: Ask) -> None:
        """*ask* joins the line."""
        self.groups.add(ask)
        number = self.arrived[-ask.priority] = self.arrived.get(-ask.priority, 0) + 1
        self.by_age.setdefault(-ask.priority, {})[ask.run_id] = (number, ask)

    def remove(self, ask: Ask) -> None:
        """*ask* leaves the line."""
        self.groups.remove(ask)
        del self.by_age[-ask.priority][ask.run_id]

    def front(
        self, usage: Mapping[str, float], first_come_s: float = math.inf, now_s: float = 0.0
    ) -> list[Ask]:
        """The first `window` runs, in the order in which a decision looks at them.

        Args:
            usage: Decayed GPU-seconds of each team that waits or has run.
            first_come_s: See `order.first_come_wait_s`; infinite when nobody has waited long.
            now_s: The time of the decision.
        """
        for ask in self.long_waited:
            ask.long_waited = False
        self.long_waited = []
        for waiting in self.by_age.values():
            oldest = (ask for _, ask in waiting.values())
            self.long_waited += waited_long(oldest, first_come_s, now_s, self.settings)
        for ask in self.long_waited:
            ask.long_waited = True
        due = self.overtaken(self.settings.overtake_limit, self.settings.window)
        return self.groups.front(
            usage, [*due, *(ask for ask in self.long_waited if ask not in due)]
        )

    def elders(self) -> list[Ask]:
        """Runs that may come to be overtaken `overtake_bound` times in one decision."""
        window = self.settings.window
        return self.overtaken(self.settings.overtake_bound - window, window + 1)

    def overtaken(self, times: int, most: int) -> list[Ask]:
        """Up to *most* runs that were overtaken at least so many *times*, oldest first.

        Nobody was overtaken more often than those who came before him, so
        only the oldest need a look.
        """
        found: list[Ask] = []
        for level, waiting in self.by_age.items():
            arrived, count = self.arrived[level], len(waiting)
            if arrived - count < times:
                continue
            for at, (number, ask) in enumerate(islice(waiting.values(), most)):
                ask.overtaken = (arrived - number) - (count - at - 1)
                if ask.overtaken < times:
                    break
                found.append(ask)
        return found
