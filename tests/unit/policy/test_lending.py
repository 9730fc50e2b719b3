"""Host memory that is promised and idle: who may have it, and who gives it back when."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.lease import Admit, Demand, Wait
from headway.model.node import NodeReading
from headway.policy.admission import judge
from headway.policy.board import Board, Place
from headway.policy.decide import decide
from headway.policy.fit import Ask, Headroom, WaitingRun
from headway.policy.headroom import compute_headroom
from headway.policy.lending import LEND_AFTER_S, Borrower, GiveBack, give_back, kept_bytes
from headway.policy.plan import Start, plan
from headway.policy.pool import NodeView, RunningRun
from headway.policy.preempt import Runner
from headway.policy.room import NOTHING, Need, Room
from headway.policy.settings import PolicySettings
from headway.units import GIB
from tests.unit.policy.test_headroom import AT, NODE, lease, reading

OLD = AT - timedelta(seconds=LEND_AFTER_S)
KEPT = 2 * kept_bytes(64 * GIB)
BORROWER = Demand(20 * GIB, 1.0, may_borrow=True)
BUSY = (lease(30, run="a", at=OLD), lease(30, run="b", at=OLD))
"""All of the 60 GiB that the node may promise."""


def idle(a_gib: int = 8, b_gib: int = 8, *, others_gib: int = 0, **own: int) -> NodeReading:
    used = {"a": a_gib, "b": b_gib, **own}
    return reading(sum(used.values()) + others_gib, own_gib=used)


def headroom(*more: object, seen: NodeReading | None = None) -> Headroom:
    return compute_headroom(NODE, [*BUSY, *more], seen or idle())  # type: ignore[list-item]


def test_what_is_promised_and_idle_may_be_borrowed_by_who_may_be_stopped() -> None:
    seen = headroom()
    assert seen.host.free_bytes == 0
    # 64 less the reserve of 4, twice 8 and a quarter of that, and what is kept for growth.
    assert seen.lendable_bytes == (64 - 4 - 20) * GIB - KEPT
    assert judge(BORROWER, seen) == Admit("n", lent=True)
    assert isinstance(judge(replace(BORROWER, may_borrow=False), seen), Wait)


def test_where_there_is_headroom_nothing_is_borrowed() -> None:
    seen = compute_headroom(NODE, BUSY[:1], idle(b_gib=0))
    assert judge(BORROWER, seen) == Admit("n", lent=False)


@pytest.mark.parametrize(
    ("others", "seen"),
    [
        ([lease(30, run="a"), BUSY[1]], idle()),  # it has begun just now
        ([*BUSY], reading(16, own_gib={"a": 8})),  # nobody knows what b uses
        ([*BUSY], idle(a_gib=26)),
        ([*BUSY], idle(others_gib=30)),
        ([*BUSY, replace(lease(20, run="c"), lent=True)], idle()),  # another has borrowed it
        ([*BUSY], None),  # nobody has looked
    ],
)
def test_what_may_be_needed_soon_is_not_lent(
    others: list[object], seen: NodeReading | None
) -> None:
    assert isinstance(judge(BORROWER, compute_headroom(NODE, others, seen)), Wait)  # type: ignore[arg-type]


def test_what_borrowers_use_takes_no_headroom_from_others() -> None:
    """Neither by its grant, nor as a stranger's use: it is given back when it is needed."""
    borrowed = replace(lease(20, run="c"), lent=True)
    before = compute_headroom(NODE, BUSY[:1], idle(b_gib=0))
    after = compute_headroom(NODE, [BUSY[0], borrowed], idle(b_gib=0, c=20))
    assert after.host.free_bytes == before.host.free_bytes == 30 * GIB
    assert after.host.load == before.host.load + borrowed.cpus  # CPUs are promised as to all


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.booleans()), max_size=6),
    st.integers(0, 20),
)
def test_leases_that_are_not_lent_never_exceed_what_may_be_promised(
    asked: list[tuple[int, int, bool]], others_gib: int
) -> None:
    """Whoever comes in whatever order, and however much of it is used."""
    held, used = list[object](), dict[str, int]()
    for at, (gib, use_gib, may_borrow) in enumerate(asked):
        seen = reading(min(sum(used.values()) + others_gib, 64), own_gib=used)
        offered = compute_headroom(NODE, held, seen)  # type: ignore[arg-type]
        answer = judge(Demand(gib * GIB, 0.1, may_borrow=may_borrow), offered)
        if isinstance(answer, Admit):
            run = f"run{at}"
            held.append(replace(lease(gib, cpus=0.1, run=run, at=OLD), lent=answer.lent))
            used[run] = min(gib, use_gib)
            assert may_borrow or not answer.lent
    promised = sum(one.host_memory_bytes for one in held if not one.lent)  # type: ignore[attr-defined]
    assert promised <= 60 * GIB


# --- in a plan ---


def board(lendable: int, free: int = 0) -> Board:
    return Board([Headroom("n", Room(100, 8.0, free, is_gpu=False), [], lendable_bytes=lendable)])


def ask(run_id: str, memory: int = 40, *, may_borrow: bool = True, priority: int = 0) -> Ask:
    return Ask(
        run_id, 0.0, 0, NOTHING, 100.0, 100.0,
        host=Need(memory, 1.0), may_borrow=may_borrow, priority=priority,
    )  # fmt: skip


def decided(seen: Board, *front: Ask) -> list[str]:
    outcomes = decide(seen, front, {}, now_s=0.0, settings=PolicySettings())
    return [one.ask.run_id + "!" * one.ask.lent for one in outcomes if one.start]


def test_those_who_may_borrow_do_so_as_long_as_there_is_something_to_lend() -> None:
    seen = board(90)
    assert decided(seen, ask("a"), ask("b", may_borrow=False), ask("c"), ask("d")) == ["a!", "c!"]
    assert seen.nodes[0].lendable_bytes == 10
    assert seen.nodes[0].host.free_bytes == 0


def test_room_of_ones_own_goes_first() -> None:
    assert decided(board(90, free=40), ask("a"), ask("b")) == ["a", "b!"]


def test_to_stop_a_borrower_frees_no_promised_memory() -> None:
    """It is not stopped for somebody who needs memory of his own."""
    seen, low = board(90), ask("low").borrowing
    seen.enter(low, (Place(0, ()),), 0.0)
    runner = Runner(low, (Place(0, ()),), 0.0, preemptible=True)
    high = ask("high", may_borrow=False, priority=1)
    (outcome,) = decide(seen, [high], {}, now_s=1.0, settings=PolicySettings(), runners=[runner])
    assert not outcome.preempts
    assert not outcome.start
    seen.leave(low, (Place(0, ()),))
    assert (seen.nodes[0].lendable_bytes, seen.nodes[0].host.free_bytes) == (90, 0)


def test_a_plan_lends_and_says_so() -> None:
    view = NodeView(NODE, BUSY, idle())
    run = WaitingRun.of("c", BORROWER, AT, settings=PolicySettings())
    made = plan(
        [view], [run], [RunningRun("a"), RunningRun("b")], now=AT, settings=PolicySettings()
    )
    (start,) = made.entries
    assert isinstance(start, Start)
    assert [each.lent for each in start.admits] == [True]


# --- given back ---

CAPACITY = 160 * GIB
ONE = 4 * GIB
"""Kept of such a node; its borrowers begin to leave at twice that."""


def borrowers(*used_gib: int) -> list[Borrower]:
    return [Borrower(f"c{at}", gib * GIB, float(at), 30.0) for at, gib in enumerate(used_gib)]


def test_as_long_as_there_is_enough_nobody_has_to_go() -> None:
    assert give_back(borrowers(1, 2, 3), 2 * ONE, CAPACITY) == []
    assert give_back([], 0, CAPACITY) == []


def test_the_last_one_goes_first_with_its_grace_time_and_no_more_than_needed() -> None:
    assert give_back(borrowers(9, 9, 3), 2 * ONE - 1, CAPACITY) == [GiveBack("c2", 30.0)]
    found = give_back(borrowers(9, 9, 3), 2 * ONE - 4 * GIB, CAPACITY)
    assert found == [GiveBack("c2", 30.0), GiveBack("c1", 30.0)]


def test_at_the_last_moment_there_is_no_grace() -> None:
    found = give_back(borrowers(9, 9, 3), ONE - 1, CAPACITY)
    assert found == [GiveBack("c2", 0.0), GiveBack("c1", 0.0)]


def test_of_a_small_node_a_part_is_kept() -> None:
    assert kept_bytes(16 * GIB) == GIB
    assert kept_bytes(1024 * GIB) == 4 * GIB
