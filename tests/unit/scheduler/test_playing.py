"""How long runs wait, by playing the queue forward; those beyond the planned ones, too."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headway.estimate.usual import Lasted, Usual, kind_of
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import GpuGrant, Lease, Sharing
from headway.model.node import NodeState
from headway.model.run import RunState
from headway.policy.plan import Start, Stay
from headway.policy.settings import PolicySettings
from headway.scheduler.limits import Gates
from headway.scheduler.planning import PoolNow
from headway.scheduler.playing import play
from headway.scheduler.snapshot import Known
from headway.scheduler.waiting import Waiting
from headway.scheduler.why import told
from headway.units import GIB
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
    assert [stay.planned and stay.planned.median_s for stay in made.behind] == [600.0, 1200.0]
    assert [stay.expected_at for stay in made.behind] == [
        at + timedelta(seconds=each) for each in (600.0, 1200.0)
    ]
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


HOLDER = replace(RECORDS[0], run_id="h", name="fit", state=RunState.RUNNING, started_at=NOON)


def held(left_s: float | None, known: Known = KNOWN, *, after_s: float = 0.0) -> PoolNow:
    """The pool whose only GPU a run has of which its log says that it takes *left_s* more."""
    at = NOON + timedelta(seconds=after_s)
    told = ProgressSnapshot("h", 1, at, after_s, 0.1, left_s, 0.9 * (left_s or 0), left_s)
    gpus = (GpuGrant("u", 24 * GIB, Sharing.WHOLE),)
    lease = Lease(1, "h", 1, "a", "t", GIB, 1.0, gpus, {}, NOON, at)
    now = pool(replace(known, said={"h": told} if left_s else {}))
    holder = HOLDER if left_s else replace(HOLDER, prediction=None)
    nodes = tuple(replace(node, heartbeat_at=at) for node in now.seen.nodes)
    seen_then = replace(now.seen, at=at, nodes=nodes, leases=(lease,), holders=(holder,))
    return replace(now, seen=seen_then)


def test_nobody_starts_before_the_expected_end_of_who_has_its_place() -> None:
    """A run with more epochs than its twin, which has ended, was drawn to end like that one."""
    twin = Lasted(kind_of(HOLDER.job, "ada", HOLDER.team), 8.0, HOLDER.submitted_at.timestamp())
    now = held(3600.0, replace(KNOWN, ended=[twin]))
    played = play(now)
    assert min(wait.low_s for wait in played.waits.values()) > 3000.0
    for entry in held(3600.0, replace(KNOWN, played=played)).plan().entries:
        assert isinstance(entry, Stay)
        assert entry.expected_at is not None
        assert entry.expected_at >= NOON + timedelta(seconds=3600)
        assert entry.latest_at >= entry.expected_at >= entry.earliest_at


def test_one_plan_is_told_until_the_next_one_whatever_a_run_tells_meanwhile() -> None:
    known = replace(KNOWN, played=play(held(600.0)))
    before, later = held(600.0, known), held(4200.0, known, after_s=20.0)
    said, after = before.plan().entries, later.plan().entries
    assert [each.expected_at for each in said] == [each.expected_at for each in after]
    assert [each.earliest_at for each in said] == [each.earliest_at for each in after]
    assert {each.planned_at for each in (*said, *after)} == {NOON}
    (holder,) = later.seen.holders
    ends = later.known.left(holder, later.seen.at)
    assert ends.median_s == pytest.approx(580.0)
    over = held(600.0, known, after_s=620.0)  # it has not ended by then
    for entry in over.plan().entries:
        assert entry.expected_at >= over.seen.at + timedelta(
            seconds=over.known.left(holder, over.seen.at).median_s
        )
    # Nobody has played it for long: what is known now counts.
    assert known.played.as_of(NOON + timedelta(minutes=14)) is known.played
    assert not known.played.as_of(NOON + timedelta(minutes=16)).left


def test_what_was_not_known_as_it_was_planned_is_unknown_until_the_next_plan() -> None:
    known = replace(KNOWN, played=play(held(None)))
    for now in (held(None, known), held(600.0, known)):
        assert {each.expected_at for each in now.plan().entries} == {None}
    first, *_ = held(600.0, replace(KNOWN, played=play(held(600.0)))).plan().entries
    assert first.expected_at >= NOON + timedelta(seconds=600)


def test_who_has_got_the_place_since_it_was_planned_is_waited_for() -> None:
    known = replace(KNOWN, played=replace(play(held(600.0)), left={}))
    for entry in held(4200.0, known, after_s=20.0).plan().entries:
        assert entry.expected_at >= NOON + timedelta(seconds=4220)
        assert entry.planned_at == NOON + timedelta(seconds=20)
