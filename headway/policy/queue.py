"""The queue of a pool: the runs that wait in their order, and what each is promised."""

import math
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from headway.model.lease import ANY_PORT
from headway.policy.fit import Ask
from headway.policy.order import VirtualTime
from headway.policy.promise import PoolTotals, Work, first_come_s
from headway.policy.settings import PolicySettings

AskT = TypeVar("AskT", bound=Ask)


@dataclass(slots=True)
class Queue(Generic[AskT]):
    """Who waits and who runs."""

    settings: PolicySettings
    totals: PoolTotals
    virtual: VirtualTime
    waiting: dict[str, AskT] = field(default_factory=dict)
    running: dict[str, tuple[Ask, float]] = field(default_factory=dict)
    """Runs that have started, each with its predicted end by means."""
    _promises: list[tuple[float, str]] = field(default_factory=list)
    """Waiting runs by the start they were promised."""
    _levels: Counter[int] = field(default_factory=Counter)
    """How many wait at each priority."""
    _work: dict[tuple[int, str], Work] | None = None
    """What waits, by priority and team; summed up when the first run is to be promised something,
    which in most decisions none is."""

    def add(self, ask: AskT, now_s: float, *, may_start: bool = True) -> None:
        """*ask* joins the queue now; it gets its tag and its promise unless it has them.

        Args:
            ask: The run. Its tag and its promise are set here and nowhere else.
            now_s: The time of the decision.
            may_start: Whether its quota lets it start; without that nothing is promised yet.
        """
        if ask.tag is None:
            self.virtual.advance(now_s)
        self.virtual.enter(ask)
        if ask.promised_s is None and may_start:
            own, work = self.totals.work(ask, ask.mean_s), self._waiting_work()
            wait_s = first_come_s(ask, own, work, self._left(now_s), self.settings)
            wait_s = max(wait_s, *(self._port_s(ask, port, now_s) for port in ask.ports), 0.0)
            ask.promised_s = now_s + self.settings.promise_factor * wait_s
        if ask.promised_s is not None:
            insort(self._promises, (ask.promised_s, ask.run_id))
        self.waiting[ask.run_id] = ask
        self._levels[ask.priority] += 1
        self._count(ask, 1.0)

    def start(self, ask: Ask, end_s: float) -> None:
        """The run of *ask*, at the size that it has now, is predicted to end at *end_s*."""
        asked = self.waiting.pop(ask.run_id)
        self._levels -= Counter({asked.priority: 1})
        if asked.promised_s is not None:
            self._promises.remove((asked.promised_s, ask.run_id))
        self._count(asked, -1.0)
        ask.tag, ask.overrun_work_s = asked.tag, asked.overrun_work_s
        self.running[ask.run_id] = (ask, end_s)

    def add_running(self, ask: AskT, end_s: float) -> None:
        """*ask* runs already and is predicted to end at *end_s*."""
        self.virtual.enter(ask)
        self.running[ask.run_id] = (ask, end_s)

    def end(self, ask: Ask) -> None:
        """The run of *ask*, which had started, has ended."""
        self.virtual.leave(ask)
        del self.running[ask.run_id]

    def front(self, now_s: float) -> list[AskT]:
        """The first runs: by priority, then those whose promise is due, then the order.

        As many as the `window` has.
        """
        window = self.settings.window
        self.virtual.advance(now_s)
        due = self._promises[: bisect_right(self._promises, now_s, key=itemgetter(0))]
        front: dict[str, AskT] = {}
        for level in sorted(self._levels, reverse=True):
            # Only as far as there is a place: thousands may wait.
            order = chain(map(itemgetter(1), due), self.virtual.order())
            for run_id in filter(self._is_at(level), order):
                if len(front) == window:
                    return list(front.values())
                front.setdefault(run_id, self.waiting[run_id])
        return list(front.values())

    def in_order(self) -> list[str]:
        """All who wait, in the order within a priority, whatever is due."""
        return [run_id for run_id in self.virtual.order() if run_id in self.waiting]

    def _is_at(self, level: int) -> Callable[[str], bool]:
        return lambda run_id: (
            (ask := self.waiting.get(run_id)) is not None and (ask.priority == level)
        )

    def _left(self, now_s: float) -> Work:
        """The work that is left of those who run."""
        left = Work()
        for ask, end_s in self.running.values():
            left = left.plus(self.totals.work(ask, max(end_s - now_s, 0.0)))
        return left

    def _port_s(self, ask: Ask, port: int, now_s: float) -> float:
        """How long a first-come queue would take for those before *ask* who need the same port."""
        if port == ANY_PORT or math.isinf(self.totals.same_port):
            return 0.0

        def work(one: Ask, seconds: float) -> Work:
            return Work(seconds * one.nodes / self.totals.same_port)

        waiting: dict[tuple[int, str], Work] = {}
        running = Work()
        for one in self.waiting.values():
            if port in one.ports:
                key = (one.priority, one.team)
                waiting[key] = waiting.get(key, Work()).plus(work(one, one.mean_s))
        for runs, end_s in self.running.values():
            if port in runs.ports:
                running = running.plus(work(runs, max(end_s - now_s, 0.0)))
        return first_come_s(ask, work(ask, ask.mean_s), waiting, running, self.settings)

    def _waiting_work(self) -> dict[tuple[int, str], Work]:
        if self._work is None:
            self._work = {}
            for ask in self.waiting.values():
                self._count(ask, 1.0)
        return self._work

    def _count(self, ask: Ask, times: float) -> None:
        if self._work is not None:
            key, work = (ask.priority, ask.team), self.totals.work(ask, ask.mean_s)
            self._work[key] = self._work.get(key, Work()).plus(work, times)
