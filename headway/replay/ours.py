"""headway's own policy in a replay: the queue and the decision that the workers use."""

from dataclasses import dataclass, field

from headway.policy.board import Board
from headway.policy.decide import Held, Outcome, decide
from headway.policy.fit import Ask
from headway.policy.order import DecayedUsage, first_come_wait_s
from headway.policy.settings import PolicySettings
from headway.replay.queue import ReplayQueue


@dataclass(slots=True)
class Headway:
    """Keeps what the ledger keeps on a site: the queue, the teams' use, what they hold."""

    settings: PolicySettings
    line: ReplayQueue = field(init=False)
    usage: DecayedUsage = field(init=False)
    held: dict[str, Held] = field(default_factory=dict)
    running: dict[str, tuple[int, float]] = field(default_factory=dict)
    """GPUs and predicted end of each run."""

    def __post_init__(self) -> None:
        self.line = ReplayQueue(self.settings)
        self.usage = DecayedUsage(self.settings.fair_share_half_life_s)

    def add(self, ask: Ask) -> None:
        """*ask* joins the queue."""
        self.line.add(ask)
        self.usage.used.setdefault(ask.team, 0.0)

    def ended(self, ask: Ask, now_s: float) -> None:
        """The run of *ask* has ended."""
        self.usage.change(ask.team, -ask.share, now_s)
        self.held[ask.team].add(ask, -1)
        del self.running[ask.run_id]

    def decide(self, board: Board, now_s: float) -> list[Outcome]:
        """The runs of the front of the queue that start now."""
        self.usage.advance(now_s)
        gpus = sum(len(node.gpus) for node in board.nodes)
        work_s = self.line.sorted.work_s
        first_come_s = first_come_wait_s(work_s, self.running.values(), gpus, now_s)
        front = self.line.front(self.usage.used, first_come_s, now_s)
        outcomes = decide(
            board,
            front,
            self.line.near_bound(),
            self.held,
            now_s=now_s,
            settings=self.settings,
        )
        started = [outcome for outcome in outcomes if outcome.start]
        for outcome in started:
            ask = outcome.ask
            self.line.remove(ask)
            self.running[ask.run_id] = (ask.gpus * ask.nodes, now_s + ask.high_s)
            self.usage.change(ask.team, ask.share, now_s)
            self.held.setdefault(ask.team, Held()).add(ask)
        return started
