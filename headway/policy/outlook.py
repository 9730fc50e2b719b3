"""When the runs of the queue may start: the queue played forward by what runs usually last.

This is what people are told. What is guaranteed, and who may pass whom, goes by
the upper quantiles of the board that decides; nothing here changes that.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from headway.model.run import Span
from headway.policy.board import Board, Place
from headway.policy.decide import Hold, Outcome
from headway.policy.fit import Ask

_A_MINUTE = timedelta(minutes=1)


class Variance(NamedTuple):
    """How far off a moment may be, as squares: independent variances add up so."""

    sooner: float = 0.0
    later: float = 0.0

    def plus(self, other: "Variance") -> "Variance":
        """The variance of the sum of both."""
        return Variance(self.sooner + other.sooner, self.later + other.later)

    @classmethod
    def of(cls, span: Span) -> "Variance":
        """The variance of a duration."""
        return cls((span.median_s - span.low_s) ** 2, (span.high_s - span.median_s) ** 2)


class Expected(NamedTuple):
    """The expected start of a run; infinite when it cannot be said."""

    earliest_s: float = math.inf
    expected_s: float = math.inf
    latest_s: float = math.inf
    unknown: str = ""
    """The run of whose length nothing is known, where it is for that."""


class Unknown(NamedTuple):
    """A run of whose length nothing is known."""

    name: str
    """What people call it."""
    team: str

    def name_for(self, team: str) -> str:
        """What a run of *team* is told: other teams' runs have no names there."""
        return self.name if team == self.team else "a run of another team"


class Outlook:
    """The pool and its queue, run by run in order, each at the earliest that those ahead leave.

    A run of unknown length never leaves; who depends on it starts at no known time.
    """

    def __init__(
        self,
        board: Board,
        now_s: float,
        *,
        variances: Mapping[float, Variance],
        unknown: Mapping[str, Unknown],
        team_ends: Mapping[tuple[str, str], float],
    ) -> None:
        """Begin with those who run.

        Args:
            board: With the expected ends; infinite for runs of unknown length. Changed here.
            now_s: The time of the decision.
            variances: How sure each of these ends is, by the end itself.
            unknown: The runs of unknown length that hold a place, by id.
            team_ends: When the first running run of each team, and of each of its users, is
                expected to end; by team and user, who is empty for the whole team.
        """
        self._board, self._now_s = board, now_s
        self._variances = dict(variances)
        self._runs = unknown
        self._unknown = {
            node.name: unknown[one.run_id]
            for node in board.nodes
            for one in reversed(node.host.occupants)
            if one.run_id in unknown
        }
        self._team_ends = dict(team_ends)
        self._ends = [
            one.end_s
            for node in board.nodes
            for room in (node.host, *node.gpus)
            for one in room.occupants
        ]

    def add(self, outcome: Outcome, lasts: Span | None, name: str, decided: Board) -> Expected:
        """Put the next run of the queue in, as it was decided on *decided*; when it may start.

        Args:
            outcome: Its outcome.
            lasts: How long it is expected to run; None when nothing is known.
            name: What people call it.
            decided: The board of the decision, by upper quantiles.
        """
        now_s, ask = self._now_s, outcome.ask
        takes_s = lasts.median_s if lasts is not None else math.inf
        own = Variance.of(lasts) if lasts is not None else Variance()
        if outcome.start:
            self._board.enter(replace(ask, high_s=takes_s), outcome.start, now_s)
            self._note(outcome.start, Unknown(name, ask.team), now_s + takes_s, own)
            for key in {(ask.team, ""), (ask.team, ask.user)}:
                before_s = self._team_ends.get(key, math.inf)
                self._team_ends[key] = min(before_s, now_s + takes_s)
            return Expected(now_s, now_s, now_s)
        # Where nothing is known of it, it is taken to need what the decision takes.
        brief = replace(ask, high_s=takes_s if lasts is not None else ask.median_s)
        start_s, places = self._board.earliest(brief, now_s)
        if not outcome.preempts:
            start_s = max(start_s, self._opens_s(outcome))
        if not places or math.isinf(start_s):
            return self._never_or_unknown(ask, decided)
        # Of one that has outlived what was expected of it nothing better is known.
        rough = Variance.of(Span(now_s, start_s, 2 * start_s - now_s))
        variance = self._variances.get(start_s, rough)
        self._board.reserve(replace(ask, high_s=takes_s), places, start_s)
        called = Unknown(name, ask.team)
        self._note(places, called, start_s + takes_s, variance.plus(own))
        earliest_s = max(now_s, start_s - math.sqrt(variance.sooner))
        return Expected(earliest_s, start_s, start_s + math.sqrt(variance.later))

    def _opens_s(self, outcome: Outcome) -> float:
        """Before this nothing changes for a run that does not start now."""
        if outcome.hold is Hold.QUOTA:
            user = outcome.quota.user if outcome.quota is not None else ""
            return self._team_ends.get((outcome.ask.team, user), self._now_s)
        return min(self._ends, default=self._now_s)

    def _note(
        self, places: tuple[Place, ...], run: Unknown, end_s: float, variance: Variance
    ) -> None:
        self._ends.append(end_s)
        self._variances[end_s] = variance
        if math.isinf(end_s):
            for place in places:
                self._unknown.setdefault(self._board.nodes[place.node].name, run)

    def _never_or_unknown(self, ask: Ask, decided: Board) -> Expected:
        """Nobody can say when: for want of a node, or because of a run of unknown length."""
        if math.isinf(decided.earliest(ask, self._now_s)[0]):
            return Expected()
        rooms = (each for node in self._board.nodes for each in node.port_rooms(ask))
        full = [room for room, need in rooms if not room.fits_now(need)]
        ports = [
            self._runs[one.run_id]
            for room in full
            for one in room.occupants
            if one.run_id in self._runs
        ]
        names = [self._unknown[n.name] for n in self._board.nodes if n.name in self._unknown]
        able = [
            self._unknown[node.name]
            for node in self._board.nodes
            if node.name in self._unknown and node.admits(ask)
        ]
        found = next(iter(ports or able or names), None)
        return Expected(unknown=found.name_for(ask.team) if found is not None else "")


def around(
    earliest: datetime | None, expected: datetime, latest: datetime | None, today: datetime
) -> str:
    """A moment with its interval, such as ``about 07:06 (07:02–07:15)``.

    Args:
        earliest: Beginning of the interval.
        expected: The moment; all in one time zone.
        latest: End of the interval.
        today: Of another day the date is said.
    """
    first, last = earliest or expected, latest or expected
    said = f"about {clock(expected, today)}"
    if last - first < _A_MINUTE:
        return said
    return f"{said} ({clock(first, expected)}–{clock(last, expected)})"


def promise_text(promised: datetime | None, now: datetime) -> str:
    """The end of a sentence that says when a run is expected to start: what bounds its wait.

    The expected start is the one to believe; what was promised only says when it goes first.

    Args:
        promised: By when it was promised to start; None for nothing.
        now: In the time zone that is told.
    """
    if promised is None:
        return ""
    when = f"{clock(promised.astimezone(now.tzinfo), now)} {now:%Z}".rstrip()
    if promised > now:
        return f"; if it still waits at {when}, it goes before all others from then on"
    return f"; it goes first now, since it has waited past {when}"


def clock(moment: datetime, beside: datetime) -> str:
    """A moment as people say it; with its date where that is not *beside*'s."""
    return f"{moment:%H:%M}" if moment.date() == beside.date() else f"{moment:%d %b %H:%M}"
