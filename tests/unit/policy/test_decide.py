from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.board import Board, Place
from headway.policy.decide import Held, Hold, Outcome, decide
from headway.policy.fit import Ask
from headway.policy.reasons import explain
from headway.policy.settings import PolicySettings, TeamSettings
from tests.unit.policy.boards import ask, asks, board, check, queue

BUSY = PolicySettings(window=8, reservations=3)


def run(
    seen: Board, front: Sequence[Ask], settings: PolicySettings = BUSY, now_s: float = 100.0
) -> list[Outcome]:
    return decide(seen, front, {}, now_s=now_s, settings=settings)


def run_places(gpu: int, node: int = 0) -> tuple[Place, ...]:
    return (Place(node, (gpu,)),)


def started(outcomes: Sequence[Outcome]) -> list[str]:
    return [one.ask.run_id for one in outcomes if one.start]


def test_a_short_run_passes_and_a_long_one_does_not() -> None:
    seen = board(gpus=2)
    seen.enter(ask("running", whole=True, runtime_s=100), run_places(0), 0.0)
    head = ask("head", gpus=2, whole=True)
    short = ask("short", whole=True, runtime_s=60)
    long = ask("long", whole=True, runtime_s=61)
    settings = PolicySettings(reservations=1)
    outcomes = run(seen, [head, long, short], settings, now_s=40.0)
    assert started(outcomes) == ["short"]
    assert outcomes[0].reserved_s == 100.0
    assert outcomes[1].hold is Hold.ROOM


def test_the_plan_is_new_when_a_run_outlives_its_prediction() -> None:
    seen = board(gpus=2)
    seen.enter(ask("running", whole=True, runtime_s=100), run_places(0), 0.0)
    front = [ask("head", gpus=2, whole=True), ask("long", whole=True, runtime_s=40)]
    assert started(run(seen, front, PolicySettings(reservations=1), now_s=90.0)) == []
    # Now it is expected to take a quarter of its 200 s again: 50 s more.
    assert started(run(seen, front, PolicySettings(reservations=1), now_s=200.0)) == ["long"]


def test_more_than_the_head_is_protected_where_asked_for() -> None:
    def seen() -> Board:
        made = board(nodes=2, gpus=2)
        made.enter(ask("r0", whole=True, runtime_s=50), run_places(0), 0.0)
        made.enter(ask("r1", whole=True, runtime_s=100), run_places(0, node=1), 0.0)
        return made

    first = ask("first", gpus=2, whole=True, runtime_s=500)
    second = ask("second", gpus=2, whole=True, runtime_s=500)
    long = ask("long", whole=True, runtime_s=300)
    front = [first, second, long]
    assert started(run(seen(), front, PolicySettings(reservations=1), now_s=10.0)) == ["long"]
    assert started(run(seen(), front, PolicySettings(reservations=2), now_s=10.0)) == []


def test_nobody_joins_a_run_that_has_outlived_its_prediction() -> None:
    seen = board(gpus=1)
    seen.enter(ask("running", memory=4, load=0.1, runtime_s=100), run_places(0), 0.0)
    beside = ask("beside", memory=4, load=0.1)
    outcomes = run(seen, [beside], now_s=101.0)
    assert started(outcomes) == []
    assert outcomes[0].reserved_s > 101.0
    reason = explain(outcomes[0], seen).reason
    assert reason.endswith("; 1 take(s) nobody beside a run that lasts longer than was predicted")
    fresh = board(gpus=1)
    fresh.enter(ask("running", memory=4, load=0.1, runtime_s=100), run_places(0), 0.0)
    assert started(run(fresh, [beside], now_s=99.0)) == ["beside"]


def test_who_can_never_run_keeps_nobody_waiting() -> None:
    never = ask("never", gpus=9, whole=True, promised_s=0.0)
    assert started(run(board(), [never, ask("other", submitted_s=1.0)])) == ["other"]


def test_who_is_held_by_his_own_quota_keeps_nobody_waiting() -> None:
    settings = PolicySettings(window=8, teams={"red": TeamSettings(max_running=0)})
    held = ask("held", promised_s=0.0, team="red")
    outcomes = run(board(), [held, ask("other", submitted_s=1.0)], settings)
    assert started(outcomes) == ["other"]
    assert outcomes[0].hold is Hold.QUOTA


def test_best_fit_leaves_the_emptier_gpu_and_node_alone() -> None:
    seen = board(nodes=2, gpus=2)
    seen.enter(ask("r0", memory=10, load=0.1, runtime_s=500), run_places(1), 0.0)
    outcomes = run(seen, [ask("small", memory=10, load=0.1), ask("whole", whole=True)])
    assert outcomes[0].start == run_places(1)
    assert outcomes[1].start == run_places(0)


@given(running=asks(), waiting=asks(), now_s=st.integers(50, 300))
def test_what_starts_fits_and_gangs_start_whole_or_not(
    running: list[Ask], waiting: list[Ask], now_s: int
) -> None:
    seen = board(nodes=2, gpus=2)
    run(seen, running, PolicySettings(window=20), now_s=50.0)
    check(seen)
    for one in waiting:
        one.run_id = f"w{one.run_id}"
    outcomes = run(seen, queue(*waiting, settings=BUSY).front(60.0), now_s=float(now_s))
    check(seen)
    for outcome in outcomes:
        if outcome.start:
            assert len({place.node for place in outcome.start}) == outcome.ask.nodes
            assert all(len(place.gpus) == outcome.ask.gpus for place in outcome.start)
        there = {
            (n, g)
            for n, node in enumerate(seen.nodes)
            for g, room in enumerate(node.gpus)
            if any(who.run_id == outcome.ask.run_id for who in room.occupants)
        }
        assert there == {(place.node, gpu) for place in outcome.start for gpu in place.gpus}


@given(running=asks(), waiting=asks())
def test_those_who_pass_delay_no_reservation(running: list[Ask], waiting: list[Ask]) -> None:
    seen = board(nodes=2, gpus=2)
    run(seen, running, PolicySettings(window=20), now_s=50.0)
    for one in waiting:
        one.run_id = f"w{one.run_id}"
    outcomes = run(seen, queue(*waiting, settings=BUSY).front(60.0), now_s=60.0)
    reserved = [one for one in outcomes if one.reserved]
    # With only the reservations of those before it, each still finds its place when it was told.
    seen.refresh(60.0, 0.25)
    for one in reserved:
        start_s, _ = seen.earliest(one.ask, 60.0)
        assert start_s <= one.reserved_s
        seen.reserve(one.ask, one.reserved, one.reserved_s)


@given(waiting=asks(gang=1))
def test_quotas_hold(waiting: list[Ask]) -> None:
    teams = {"red": TeamSettings(max_gpus=2, max_running=1), "blue": TeamSettings(max_gpus=1)}
    settings = PolicySettings(teams=teams)
    held = {"red": Held(gpus=1, running=0)}
    outcomes = decide(board(2, 2), waiting, held, now_s=0.0, settings=settings)
    red = [one.ask for one in outcomes if one.start and one.ask.team == "red"]
    blue = [one.ask for one in outcomes if one.start and one.ask.team == "blue"]
    assert sum(one.gpus for one in red) <= 1
    assert len(red) <= 1
    assert sum(one.gpus for one in blue) <= 1
    assert held == {"red": Held(gpus=1, running=0)}
