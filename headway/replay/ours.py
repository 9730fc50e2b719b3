"""headway's own policy in a replay: the queue and the decision that the workers use."""

from dataclasses import dataclass, field
from typing import Generic

from headway.policy.board import Board
from headway.policy.decide import Held, Outcome, decide
from headway.policy.fit import Ask
from headway.policy.order import VirtualTime
from headway.policy.promise import PoolTotals
from headway.policy.queue import AskT, Queue
from headway.policy.settings import PolicySettings


@dataclass(slots=True)
class Headway(Generic[AskT]):
    """Keeps what the ledger keeps on a site: the queue, and what the teams hold."""

    settings: PolicySettings
    gpus: int
    queue: Queue[AskT]
    held: dict[str, Held] = field(default_factory=dict)

    @classmethod
    def empty(cls, settings: PolicySettings, totals: PoolTotals) -> "Headway[Ask]":
        """Nobody waits and nobody runs."""
        gpus = int(totals.gpus)
        queue = Queue[Ask](settings, totals, VirtualTime(settings, gpus))
        return Headway(settings, gpus, queue)

    def add(self, ask: AskT) -> None:
        """*ask* joins the queue."""
        self.queue.add(ask, ask.submitted_s)

    def ended(self, ask: Ask, now_s: float) -> None:
        """The run of *ask* has ended."""
        self.queue.virtual.advance(now_s)
        self.queue.end(ask)
        self.held[ask.team].add(ask, -1)

    def decide(self, board: Board, now_s: float) -> list[Outcome]:
        """The runs of the front of the queue that start now."""
        front = self.queue.front(now_s)
        outcomes = decide(board, front, self.held, now_s=now_s, settings=self.settings)
        started = [outcome for outcome in outcomes if outcome.start]
        for outcome in started:
            self.queue.start(outcome.ask, now_s + outcome.ask.mean_s)
            self.held.setdefault(outcome.ask.team, Held()).add(outcome.ask)
        return started
