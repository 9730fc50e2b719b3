"""The queue of a replay: sorted as on a site, and counting who was overtaken how often."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from headway.policy.fit import Ask
from headway.policy.order import waited_long
from headway.policy.settings import PolicySettings
from headway.policy.sorted_queue import SortedQueue


@dataclass(slots=True)
class ReplayQueue:
    """Waiting runs by rank, and by submission for those that were overtaken most.

    Runs must be added in the order of their submission. How often each was
    overtaken follows from counting: of the runs that came later, those who
    do not wait any more have started.
    """

    settings: PolicySettings
    sorted: SortedQueue = field(init=False)
    by_age: dict[int, dict[str, tuple[int, Ask]]] = field(default_factory=dict)
    """By -priority: waiting runs by submission, each with its number."""
    arrived: dict[int, int] = field(default_factory=dict)
    long_waited: list[Ask] = field(default_factory=list)
    """Those that the latest front found to have waited long."""

    def __post_init__(self) -> None:
        self.sorted = SortedQueue(self.settings)

    def add(self, ask: Ask) -> None:
        """*ask* joins the queue."""
        self.sorted.add(ask)
        number = self.arrived[-ask.priority] = self.arrived.get(-ask.priority, 0) + 1
        self.by_age.setdefault(-ask.priority, {})[ask.run_id] = (number, ask)

    def remove(self, ask: Ask) -> None:
        """*ask* leaves the queue."""
        self.sorted.remove(ask)
        del self.by_age[-ask.priority][ask.run_id]

    def front(
        self, usage: Mapping[str, float], first_come_s: float = math.inf, now_s: float = 0.0
    ) -> list[Ask]:
        """The first `window` runs, in the order in which a decision takes them.

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
        return self.sorted.front(
            usage, [*due, *(ask for ask in self.long_waited if ask not in due)]
        )

    def near_bound(self) -> list[Ask]:
        """Runs that may come to be overtaken `overtake_bound` times in one decision."""
        window = self.settings.window
        return self.overtaken(self.settings.overtake_bound - window, window + 1)

    def overtaken(self, times: int, most: int) -> list[Ask]:
        """Up to *most* runs that were overtaken at least so many *times*, oldest first.

        Nobody was overtaken more often than those who came before him, so
        only the oldest are counted.
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
