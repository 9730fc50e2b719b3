"""The promise: when a first-come queue would have done a run's work, times one factor.

It is given when the run first may start: a run that follows another one, or whose array runs as
many members as it may, has no part in the queue before that, and is promised nothing.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from headway.policy.fit import Ask
from headway.policy.settings import PolicySettings


class Work(NamedTuple):
    """Predicted work, as seconds of the whole pool's GPUs, CPUs and host memory."""

    gpus_s: float = 0.0
    cpus_s: float = 0.0
    host_memory_s: float = 0.0

    def plus(self, other: "Work", times: float = 1.0) -> "Work":
        """The sum of this and *times* the *other*."""
        return Work(*(mine + times * its for mine, its in zip(self, other, strict=True)))


class PoolTotals(NamedTuple):
    """What all nodes of a pool have; never 0."""

    gpus: float = 1.0
    cpus: float = 1.0
    host_memory_bytes: float = 1.0
    same_port: float = math.inf
    """Runs that may have a port of the same number at once."""

    def work(self, ask: Ask, seconds: float) -> Work:
        """What the run of *ask* takes of the pool in so many seconds."""
        return Work(
            ask.share * seconds / self.gpus,
            ask.host.load * ask.nodes * seconds / self.cpus,
            ask.host.memory_bytes * ask.nodes * seconds / self.host_memory_bytes,
        )


def first_come_s(
    ask: Ask,
    own: Work,
    waiting: Mapping[tuple[int, str], Work],
    running: Work,
    settings: PolicySettings,
) -> float:
    """How long a first-come queue would take for all before a run that joins now, and for itself.

    Its own work counts, too: who asks for much accepts to wait for as much. Before it go all
    that runs, all that waits with a higher priority, and what waits with its own priority; but of
    another team no more than that team's weight allows until the own team's work is done. So a
    flood of runs puts off only the team that it comes from. The scarcest of the resources that
    the run asks for counts.

    Args:
        ask: The run.
        own: Its own work; the resources that it does not ask for are 0.
        waiting: By priority and team, the work that waits.
        running: The work that is left of all who run.
        settings: The teams' weights.
    """
    teams = {team for level, team in waiting if level == ask.priority} | {ask.team}
    weights = {team: settings.team(team).weight for team in teams}
    before = running.plus(own)
    for (level, _), work in waiting.items():
        if level > ask.priority:
            before = before.plus(work)
    mine = waiting.get((ask.priority, ask.team), Work())
    for team in sorted(teams):
        theirs = waiting.get((ask.priority, team), Work())
        part = weights[team] / weights[ask.team]
        before = before.plus(Work(*(min(t, part * m) for t, m in zip(theirs, mine, strict=True))))
    return max((each for each, asked in zip(before, own, strict=True) if asked > 0), default=0.0)
