"""One decision: who of the front of the queue starts now, who is promised when, who waits.

The same function serves the workers' plan and the replay.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.model.node import is_of_type
from headway.policy.board import Board, Place
from headway.policy.fit import Ask
from headway.policy.preempt import Runner, choose
from headway.policy.settings import PolicySettings, TeamSettings


class Hold(enum.StrEnum):
    """Why a run does not start in this decision."""

    ROOM = "room"
    """It does not fit beside those who run and what is promised to runs ahead of it."""
    QUOTA = "quota"
    """Its team has as much as it may have."""


class Quota(enum.Enum):
    """What a team's quota may limit."""

    GPUS = enum.auto()
    HOST_MEMORY = enum.auto()
    RUNNING = enum.auto()
    """Its runs at once."""


@dataclass(slots=True)
class Held:
    """What a team's running runs hold, against its quota."""

    gpus: int = 0
    host_memory_bytes: int = 0
    running: int = 0

    def add(self, ask: Ask, times: int = 1) -> None:
        """Count *ask* in; with *times* -1 out."""
        self.gpus += times * ask.gpus * ask.nodes
        self.host_memory_bytes += times * ask.host.memory_bytes * ask.nodes
        self.running += times

    def exceeded(self, ask: Ask, limits: TeamSettings) -> Quota | None:
        """The quota that *ask* would exceed beside these; None when it may start."""
        host_bytes = self.host_memory_bytes + ask.host.memory_bytes * ask.nodes
        if _above(self.gpus + ask.gpus * ask.nodes, limits.max_gpus):
            return Quota.GPUS
        if _above(host_bytes, limits.max_host_memory_bytes):
            return Quota.HOST_MEMORY
        return Quota.RUNNING if _above(self.running + 1, limits.max_running) else None


@dataclass(slots=True, eq=False)
class Outcome:
    """What was decided for one run."""

    ask: Ask
    start: tuple[Place, ...] = ()
    """Where it starts now; empty when it waits."""
    hold: Hold | None = None
    """Why it waits; None when it starts."""
    reserved_s: float = math.inf
    """The start it is promised; infinite without a reservation."""
    reserved: tuple[Place, ...] = ()
    preempts: tuple[Runner, ...] = ()
    """Running runs that must stop for it; those that are stopping already are among them."""


@dataclass(slots=True)
class _Decision:
    """A decision in the making."""

    board: Board
    now_s: float
    settings: PolicySettings
    held: dict[str, Held]
    runners: list[Runner]
    reservations: int = 0
    infeasible: list[Ask] = field(default_factory=list)
    """Asks that found no place: as long as the board only fills, no larger one does."""

    def outcome(self, ask: Ask) -> Outcome:
        if not self.quota_left(ask):
            return Outcome(ask, hold=Hold.QUOTA)
        places = self.place(ask)
        if places:
            return self.start(ask, places)
        outcome = Outcome(ask, hold=Hold.ROOM)
        if self.runners and self.preempt(outcome):
            return outcome
        if self.reservations < self.settings.reservations:
            outcome.reserved_s, outcome.reserved = self.board.earliest(ask, self.now_s)
            if outcome.reserved:
                self.reservations += 1
                self.board.reserve(ask, outcome.reserved, outcome.reserved_s)
        return outcome

    def preempt(self, outcome: Outcome) -> bool:
        """Stop others for the run of *outcome* if that helps; their place is held for it."""
        gone, places = choose(self.board, outcome.ask, self.runners, self.now_s)
        if not places:
            return False
        outcome.preempts, outcome.reserved, outcome.reserved_s = gone, places, self.now_s
        self.runners = [one for one in self.runners if one not in gone]
        self.board.reserve(outcome.ask, places, self.now_s)
        return True

    def quota_left(self, ask: Ask) -> bool:
        if ask.team not in self.settings.teams:
            return True
        held = self.held.get(ask.team) or Held()
        return held.exceeded(ask, self.settings.team(ask.team)) is None

    def place(self, ask: Ask) -> tuple[Place, ...]:
        if any(_no_smaller(ask, other) for other in self.infeasible):
            return ()
        places = self.board.place_now(ask, self.now_s)
        if not places:
            self.infeasible.append(ask)
        return places

    def start(self, ask: Ask, places: tuple[Place, ...]) -> Outcome:
        self.board.enter(ask, places, self.now_s)
        self.held.setdefault(ask.team, Held()).add(ask)
        return Outcome(ask, start=places)


def decide(
    board: Board,
    front: Sequence[Ask],
    held: Mapping[str, Held],
    *,
    now_s: float,
    settings: PolicySettings,
    runners: Sequence[Runner] = (),
) -> list[Outcome]:
    """Decide for the front of the queue.

    Reservations are made anew in each decision, from the upper quantiles of
    the ends as they are known now: a run that outlives its prediction moves
    them, and is not killed for it.

    Args:
        board: Who is where. Those who start are entered; reservations are left
            on it until the next decision.
        front: The first `window` runs of the queue, in order.
        held: What each team's running runs hold. Not changed.
        now_s: The time of the decision.
        settings: The knobs.
        runners: Running runs that may be stopped for a higher priority.

    Returns:
        One outcome for each of *front*, in its order.
    """
    board.refresh(now_s, settings.overrun_frac)
    making = _Decision(
        board,
        now_s,
        settings,
        {team: replace(one) for team, one in held.items()},
        list(runners),
    )
    return [making.outcome(ask) for ask in front]


def _above(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit


def _no_smaller(ask: Ask, other: Ask) -> bool:
    """Can *ask* have no place where *other* had none?"""
    need, less = ask.gpu, other.gpu
    return (
        ask.gpus >= other.gpus
        and ask.nodes >= other.nodes
        and ask.high_s >= other.high_s
        and need.memory_bytes >= less.memory_bytes
        and (need.whole or (not less.whole and need.load >= less.load))
        and ask.host.memory_bytes >= other.host.memory_bytes
        and ask.host.load >= other.host.load
        and other.node in ("", ask.node)
        and is_of_type(other.gpu_type, ask.gpu_type)
        and ask.ports >= other.ports
    )
