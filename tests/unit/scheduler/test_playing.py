"""How long runs wait, by playing the queue forward; those beyond the planned ones, too."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headway.estimate.usual import Lasted, Usual, kind_of
from headway.model.node import NodeState
from headway.policy.plan import Start, Stay
from headway.policy.settings import PolicySettings
from headway.scheduler.limits import Gates
from headway.scheduler.planning import PoolNow
from headway.scheduler.playing import play
from headway.scheduler.snapshot import Known
from headway.scheduler.waiting import Waiting
from headway.scheduler.why import told
from tests.unit.scheduler.test_front import KNOWN, NOON, RECORDS, seen


def pool(known: Known = KNOWN, *, window: int = 64, prediction: bool = True) -> PoolNow:
    waiting = Waiting()
    waiting.go_by(PolicySettings(window=window), Gates(), ())
    for each in RECORDS:
        waiting.put(each if prediction else replace(each, prediction=None), (1, 0), ())
    return PoolNow(waiting, seen({}, None), known, {})


def test_each_run_waits_for_those_before_it() -> None:
    played = play(pool())
    assert played.at == NOON
    assert sorted(wait.median_s for wait in played.waits.values()) == [0.0, 600.0, 1200.0]


def test_what_like_runs_lasted_is_drawn_where_nothing_was_predicted() -> None:
    ended = [
        Lasted(
            replace(kind_of(RECORDS[0].job, "ada", RECORDS[0].team), recipe="i"),
            60.0 if at % 2 else 1800.0,
            at * 100,
        )
        for at in range(40)
    ]
    waits = play(pool(Known({}, Usual(ended, shared=True), ended), prediction=False)).waits.values()
    last = max(waits)
    assert last.low_s < last.high_s
    assert last.high_s == pytest.approx(3600.0, rel=0.01)


def test_a_run_beyond_the_planned_ones_has_a_start_too() -> None:
    first, *_ = pool(window=1).plan().entries
    assert isinstance(first, Start)
    assert pool(window=1).whole_plan().behind == ()
    at = NOON - timedelta(seconds=60)
    known = replace(KNOWN, played=replace(play(pool()), at=at))
    made = pool(known, window=1).whole_plan()
    assert [stay.position for stay in made.behind] == [2, 3]
    assert [stay.planned and stay.planned.median_s for stay in made.behind] == [540.0, 1140.0]
    for stay in made.behind:
        assert made.entry(stay.run_id) is stay
        assert "at least 1 runs are ahead of it; number" in stay.sentence()
        ends = [stay.earliest_at, stay.expected_at, stay.latest_at]
        assert None not in ends
        assert ends == sorted(ends, key=str)


def test_no_start_is_expected_of_what_no_end_of_a_run_lets_start() -> None:
    """As on a drained node, or for a port at which a stranger listens."""
    known = replace(KNOWN, played=replace(play(pool()), at=NOON))
    now = pool(known)
    (node,) = now.seen.nodes
    drained = replace(node, node=replace(node.node, state=NodeState.DRAINING))
    now = replace(now, seen=replace(now.seen, nodes=(drained,)))
    assert [entry.expected_at for entry in now.plan().entries] == [None, None, None]
    assert told(now, now.waiting.entries["a"].run).entry is None


def test_who_joins_behind_those_that_are_planned_for_waits_as_the_last_like_it_before_it() -> None:
    """A long queue is not played once more for each question."""
    known = replace(KNOWN, played=replace(play(pool()), at=NOON))
    now = pool(known, window=1)
    last = now.waiting.entries["b"].run
    joins = replace(last, run_id="new", tag=None, promised_s=None)
    said = told(now, joins).entry
    assert isinstance(said, Stay)
    assert said.planned == known.played.waits["b"]
    assert now.wait_near(replace(joins, nodes=2)) is None
