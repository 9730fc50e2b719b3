"""The order of the line: priority, then fair share, then shortest first with ageing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headway.policy.board import Ask
from headway.policy.settings import PolicySettings

Rank = tuple[int, int, float, float, str]
"""Smaller goes first: -priority, fair share band, ageing key, submission, run."""


def ageing_key(ask: Ask, settings: PolicySettings) -> float:
    """Shortest work first; newcomers pass for `patience` times the own work at most.

    The key is the time by which the run should have had its turn: submission
    plus patience × predicted GPU-seconds. A run of an hour on one GPU goes
    before one of ten hours that came up to nine × patience hours earlier. The
    key does not move while the run waits, so that a line can be kept sorted.
    """
    return ask.submitted_s + settings.patience * ask.work_s


def bands(usage: Mapping[str, float], settings: PolicySettings) -> dict[str, int]:
    """How far each team is above its share, in steps; 0 for all at or below it.

    Args:
        usage: Decayed GPU-seconds of each team that waits or has run.
        settings: Weights, and the step below which a difference does not count.
    """
    total = sum(usage.values())
    weights = sum(settings.team(team).weight for team in usage)
    if total <= 0:
        return dict.fromkeys(usage, 0)
    above: dict[str, int] = {}
    for team, used in usage.items():
        ratio = (used / total) / (settings.team(team).weight / weights)
        steps = math.log(ratio) / math.log(settings.fair_share_step) if ratio > 1 else 0.0
        above[team] = int(steps + 1e-9)
    return above


def rank(ask: Ask, above: Mapping[str, int], settings: PolicySettings) -> Rank:
    """Place of *ask* in the line, for sorting; total, so that every worker sorts alike."""
    return (
        -ask.priority,
        above.get(ask.team, 0),
        ageing_key(ask, settings),
        ask.submitted_s,
        ask.run_id,
    )


def due_first(asks: Iterable[Ask], above: Mapping[str, int], settings: PolicySettings) -> list[Ask]:
    """*asks* in the order in which they are looked at.

    A run that was overtaken `overtake_limit` times goes to the front of its
    priority; among several of these the one that came first.
    """

    def place(ask: Ask) -> tuple[int, bool, Rank]:
        due = ask.overtaken >= settings.overtake_limit
        by = rank(ask, above, settings)
        if due:
            by = (by[0], 0, ask.submitted_s, ask.submitted_s, ask.run_id)
        return (-ask.priority, not due, by)

    return sorted(asks, key=place)


def decayed(gpu_seconds: float, age_s: float, half_life_s: float) -> float:
    """What is left of *gpu_seconds* that were used *age_s* ago."""
    return float(gpu_seconds * 0.5 ** (age_s / half_life_s))


def interval_usage(
    share: float, start_s: float, end_s: float, now_s: float, half_life_s: float
) -> float:
    """Decayed GPU-seconds of *share* GPUs held from *start_s* to *end_s*, seen at *now_s*.

    The integral of share × 2^-((now - t) / half-life) over the interval.
    """
    if end_s <= start_s:
        return 0.0
    last = decayed(1.0, now_s - end_s, half_life_s)
    first = decayed(1.0, now_s - start_s, half_life_s)
    return share * half_life_s / math.log(2) * (last - first)


@dataclass(slots=True)
class Usage:
    """Decayed GPU-seconds of the teams, kept up as runs start and end."""

    half_life_s: float
    at_s: float = 0.0
    used: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    """GPUs that each team's runs hold now."""

    def advance(self, now_s: float) -> None:
        """Let time pass until *now_s*."""
        if now_s <= self.at_s:
            return
        for team, used in self.used.items():
            self.used[team] = decayed(used, now_s - self.at_s, self.half_life_s) + interval_usage(
                self.held.get(team, 0.0), self.at_s, now_s, now_s, self.half_life_s
            )
        self.at_s = now_s

    def change(self, team: str, share: float, now_s: float) -> None:
        """*team* holds *share* more GPUs from *now_s* on; negative when it gives them back."""
        self.advance(now_s)
        self.used.setdefault(team, 0.0)
        self.held[team] = self.held.get(team, 0.0) + share
