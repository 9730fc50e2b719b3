"""One decision: who of the front of the queue starts now, who is promised when, who waits.

The same function serves the workers' plan and the replay.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headway.model.node import is_of_type
from headway.policy.board import Board, Place
from headway.policy.fit import Ask
from headway.policy.preempt import Runner, choose
from headway.policy.settings import PolicySettings, Share, TeamSettings
from headway.policy.sizing import better


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


class Exceeded(NamedTuple):
    """A quota that a run would exceed."""

    what: Quota
    held: "Held"
    """What is held of it."""
    limits: Share
    user: str = ""
    """Whose it is; empty for the whole team's."""


@dataclass(slots=True)
class Held:
    """What the running runs of a team, or of a user in it, hold against the quotas."""

    gpus: int = 0
    host_memory_bytes: int = 0
    running: int = 0
    by_user: dict[str, "Held"] = field(default_factory=dict)
    """The same of each of a team's users."""

    def add(self, ask: Ask, times: int = 1) -> None:
        """Count *ask* in; with *times* -1 out."""
        sums = [self]
        if ask.user:
            sums.append(self.by_user.setdefault(ask.user, Held()))
        for one in sums:
            one.gpus += times * ask.gpus * ask.nodes
            one.host_memory_bytes += times * ask.host.memory_bytes * ask.nodes
            one.running += times

    def copy(self) -> "Held":
        """The same sums, to count on."""
        return replace(self, by_user={name: replace(it) for name, it in self.by_user.items()})

    def exceeded(self, ask: Ask, limits: TeamSettings) -> Exceeded | None:
        """The quota that *ask* would exceed beside these; None when it may start."""
        if what := _above(self, ask, limits):
            return Exceeded(what, replace(self), limits)
        own, share = self.by_user.get(ask.user, Held()), limits.user(ask.user)
        what = _above(own, ask, share) if ask.user else None
        return Exceeded(what, replace(own), share, ask.user) if what else None


def _above(held: Held, ask: Ask, limits: Share) -> Quota | None:
    """Which of *limits* is below what would be held with *ask*."""
    sums = (
        (Quota.GPUS, held.gpus + ask.gpus * ask.nodes, limits.max_gpus),
        (
            Quota.HOST_MEMORY,
            held.host_memory_bytes + ask.host.memory_bytes * ask.nodes,
            limits.max_host_memory_bytes,
        ),
        (Quota.RUNNING, held.running + 1, limits.max_running),
    )
    return next((what for what, value, most in sums if most is not None and value > most), None)


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
    quota: Exceeded | None = None
    """The quota, for `Hold.QUOTA`."""
    times: float = 1.0
    """It takes so many times as long as it would at the size that it asked for."""


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
        if exceeded := self.exceeded(ask):
            return Outcome(ask, hold=Hold.QUOTA, quota=exceeded)
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

    def exceeded(self, ask: Ask) -> Exceeded | None:
        if ask.team not in self.settings.teams:
            return None
        held = self.held.get(ask.team) or Held()
        return held.exceeded(ask, self.settings.team(ask.team))

    def place(self, ask: Ask) -> tuple[Place, ...]:
        if any(_no_smaller(ask, other) for other in self.infeasible):
            return ()
        places = self.board.place_now(ask, self.now_s)
        if not places:
            self.infeasible.append(ask)
        return places

    def enlarge(self, outcome: Outcome) -> None:
        """Let a run that starts have a larger size that pays, of room that nobody else can use."""
        for ask in better(outcome.ask):
            self.leave(outcome)
            places = () if self.exceeded(ask) else self.board.place_now(ask, self.now_s)
            self.start(ask if places else outcome.ask, places or outcome.start)
            if places:
                outcome.times = ask.median_s / outcome.ask.median_s
                outcome.ask, outcome.start = ask, places
                return

    def leave(self, outcome: Outcome) -> None:
        self.board.leave(outcome.ask, outcome.start)
        self.held[outcome.ask.team].add(outcome.ask, -1)

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
        {team: one.copy() for team, one in held.items()},
        list(runners),
    )
    outcomes = [making.outcome(ask) for ask in front]
    for outcome in outcomes:
        if outcome.start:
            making.enlarge(outcome)
    return outcomes


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
