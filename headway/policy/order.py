"""The order of the queue: priority, then fair share, then shortest first with ageing."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from headway.policy.fit import Ask
from headway.policy.settings import PolicySettings

AskT = TypeVar("AskT", bound=Ask)

Rank = tuple[int, int, float, float, str]
"""Smaller goes first: -priority, fair share band, ageing key, submission, run."""

SMALLER = 0.1
"""A run of less than this part of another's work is much smaller."""


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
    """Place of *ask* in the queue, for sorting; total, so that every worker sorts alike."""
    return (
        -ask.priority,
        above.get(ask.team, 0),
        ageing_key(ask, settings),
        ask.submitted_s,
        ask.run_id,
    )


def due_first(
    asks: Iterable[AskT], above: Mapping[str, int], settings: PolicySettings
) -> list[AskT]:
    """*asks* in the order in which a decision takes them.

    A run that was overtaken `overtake_limit` times, or has waited long, goes
    to the front of its priority; among several of these the one that came first.
    """

    def place(ask: Ask) -> tuple[int, bool, Rank]:
        due = ask.long_waited or ask.overtaken >= settings.overtake_limit
        by = rank(ask, above, settings)
        if due:
            by = (by[0], 0, ask.submitted_s, ask.submitted_s, ask.run_id)
        return (-ask.priority, not due, by)

    return sorted(asks, key=place)


def first_come_wait_s(
    waiting_work_s: float, held: Iterable[tuple[int, float]], gpus: int, now_s: float
) -> float:
    """How long a line without order or gaps would make a run wait that comes now.

    All the work that waits and runs, spread evenly over all GPUs: no policy
    that keeps the GPUs busy changes it, so it is a fair measure of a long wait.

    Args:
        waiting_work_s: Predicted GPU-seconds of the whole queue.
        held: GPUs and predicted end of each run that runs.
        gpus: In the pool; 0 counts as 1.
        now_s: The time of the decision.
    """
    running_s = sum(count * max(0.0, end_s - now_s) for count, end_s in held)
    return (waiting_work_s + running_s) / max(1, gpus)


def waited_long(
    oldest: Iterable[Ask], first_come_s: float, now_s: float, settings: PolicySettings
) -> list[Ask]:
    """Runs that have waited so long that they go to the front of their priority.

    That is `long_wait` × *first_come_s*. Shortest first keeps the largest runs
    for the end; a first-come queue would have started them by then. A run as
    large as the pool makes all others wait, so that several of them in a row
    undo what shortest first has gained: it lets runs of less than `SMALLER`
    of its work go first that have waited `yield_frac` of its own wait, until
    it has waited `longest_wait` × *first_come_s*.

    Args:
        oldest: The line, the oldest first; no more than `considered` of them count.
        first_come_s: See `first_come_wait_s`.
        now_s: The time of the decision.
        settings: The knobs.
    """
    long: list[Ask] = []
    waiting: list[tuple[float, float]] = []
    """Submission of each of the others, and the least work until then."""
    least_s = math.inf
    since_s = now_s - settings.long_wait * first_come_s
    for ask in islice(oldest, considered(settings)):
        if ask.submitted_s <= since_s and len(long) < settings.window:
            long.append(ask)
            continue
        if not long or ask.submitted_s > now_s - settings.yield_frac * (
            now_s - long[-1].submitted_s
        ):
            break
        least_s = min(least_s, ask.work_s)
        waiting.append((ask.submitted_s, least_s))

    def goes_first(ask: Ask) -> bool:
        wait_s = now_s - ask.submitted_s
        if wait_s >= settings.longest_wait * first_come_s:
            return True
        at = bisect_right(waiting, (now_s - settings.yield_frac * wait_s, math.inf))
        return not at or waiting[at - 1][1] >= SMALLER * ask.work_s

    return [ask for ask in long if goes_first(ask)]


def considered(settings: PolicySettings) -> int:
    """Of how many of the oldest runs `waited_long` asks how long they have waited."""
    return 8 * settings.window


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
class DecayedUsage:
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
