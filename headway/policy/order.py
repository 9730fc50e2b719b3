"""The order of the queue: who would end first if all runs shared the GPUs at once.

This is the fair sojourn protocol (Friedman and Henderson, SIGMETRICS 2003). In a virtual system
each team has the part of the GPUs that its weight gives it, and the team's runs share that part
alike. No run is executed like this, but the queue is ordered by who would end first there: short
work goes first, and no run is passed for ever, because its virtual work goes on while it waits.
No run attains more than one GPU there: in an empty pool the order stays shortest first.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge

from headway.policy.fit import Ask
from headway.policy.settings import PolicySettings


@dataclass(slots=True)
class VirtualTime:
    """The virtual system of a pool, of those runs that wait or run."""

    settings: PolicySettings
    gpus: int
    at_s: float = 0.0
    attained: dict[str, float] = field(default_factory=dict)
    """By team: GPU-seconds that a run has attained which was in the system from the beginning."""
    _tags: dict[str, list[tuple[float, float, str]]] = field(default_factory=dict)
    """By team: its runs by tag, which is what `attained` will be when the run ends there; each
    with its submission."""

    def enter(self, ask: Ask) -> None:
        """Let the run of *ask* in, with its tag; it gets one if it has none."""
        if ask.tag is None:
            # The more a user weighs in the team, the less its work puts its runs behind others.
            weight = self.settings.team(ask.team).user(ask.user).weight
            said_s = ask.mean_work_s - ask.overrun_work_s
            ask.tag = self.attained.get(ask.team, 0.0) + said_s / weight
        insort(self._tags.setdefault(ask.team, []), self._place(ask))

    def leave(self, ask: Ask) -> None:
        """The run of *ask* has ended, or does not wait any more."""
        self._tags[ask.team].remove(self._place(ask))

    def _place(self, ask: Ask) -> tuple[float, float, str]:
        """By tag, and later by what the run is known to overrun its estimate by."""
        weight = self.settings.team(ask.team).user(ask.user).weight
        return (ask.tag or 0.0) + ask.overrun_work_s / weight, ask.submitted_s, ask.run_id

    def advance(self, now_s: float) -> None:
        """Let time pass until *now_s*: to the next virtual end, again and again."""
        while self.at_s < now_s:
            left = {team: count for team in self._tags if (count := self._left(team))}
            if not left:
                break
            weights = sum(self.settings.team(team).weight for team in left)
            rates = {
                team: min(self.gpus * self.settings.team(team).weight / weights / count, 1.0)
                for team, count in left.items()
            }
            ends = {team: self._tags[team][-count][0] for team, count in left.items()}
            step_s, first = min(
                ((ends[team] - self.attained.get(team, 0.0)) / rates[team], team) for team in left
            )
            whole = step_s <= now_s - self.at_s
            step_s = min(step_s, now_s - self.at_s)
            for team, rate in rates.items():
                self.attained[team] = self.attained.get(team, 0.0) + rate * step_s
            if whole:  # exactly: rounding must not leave a little to do for ever
                self.attained[first] = max(ends[first], self.attained[first])
            self.at_s += step_s
        self.at_s = max(self.at_s, now_s)

    def order(self) -> Iterator[str]:
        """The runs in the order in which they would end if nobody else came."""
        return (run for _, _, run in merge(*(self._ends(team) for team in sorted(self._tags))))

    def _left(self, team: str) -> int:
        """How many runs of *team* have not ended there."""
        tags = self._tags[team]
        return len(tags) - bisect_right(tags, (self.attained.get(team, 0.0), math.inf))

    def _ends(self, team: str) -> Iterator[tuple[float, float, str]]:
        """When each run of *team* ends, in GPU-seconds from now by weight; negative when it has."""
        tags, attained, end_s = self._tags[team], self.attained.get(team, 0.0), 0.0
        weight = self.settings.team(team).weight
        for at, (tag, submitted_s, run_id) in enumerate(tags):
            if tag <= attained and not end_s:
                yield (tag - attained) / weight, submitted_s, run_id
                continue
            end_s += (tag - attained) * (len(tags) - at) / weight
            attained = tag
            yield end_s, submitted_s, run_id
