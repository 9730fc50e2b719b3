"""Which size a run starts with that may have several."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.board import Board, Place
from headway.policy.decide import Held, Outcome, decide
from headway.policy.fit import Ask
from headway.policy.preempt import Runner
from headway.policy.settings import PolicySettings, TeamSettings
from headway.policy.sizing import Standing, better, grows, worth
from tests.unit.policy.boards import ask, asks, board, check

SETTINGS = PolicySettings(reservations=2)
LINEAR = {1: 400.0, 2: 200.0, 4: 100.0}


def elastic(run_id: str = "elastic", times: Mapping[int, float] = LINEAR, **more: object) -> Ask:
    """A run that may have as many GPUs of a node as *times* says, with the time that it takes."""
    least, *others = times
    larger = tuple(
        ask(run_id, gpus=gpus, whole=True, runtime_s=times[gpus], **more) for gpus in others
    )
    return ask(run_id, gpus=least, whole=True, runtime_s=times[least], larger=larger, **more)


def gang(run_id: str, nodes: int, most: int) -> Ask:
    sizes = [
        ask(run_id, whole=True, runtime_s=1000.0 / count, nodes=count)
        for count in range(nodes, most + 1)
    ]
    sizes[0].larger = tuple(sizes[1:])
    return sizes[0]


def start(seen: Board, *front: Ask, settings: PolicySettings = SETTINGS) -> list[Outcome]:
    return decide(seen, list(front), {}, now_s=0.0, settings=settings)


def taken(outcome: Outcome) -> tuple[int, int]:
    return len(outcome.start), sum(len(place.gpus) for place in outcome.start)


def test_a_run_starts_with_as_many_gpus_as_there_are_and_as_pay() -> None:
    assert taken(start(board(gpus=4), elastic())[0]) == (1, 4)
    assert taken(start(board(gpus=3), elastic())[0]) == (1, 2)
    assert taken(start(board(gpus=1), elastic())[0]) == (1, 1)
    assert taken(start(board(gpus=4), elastic(times={2: 200.0, 4: 199.0}))[0]) == (1, 2)


def test_twice_the_gpus_pay_where_they_save_30_percent_of_the_time() -> None:
    assert [one.gpus for one in better(elastic(times={1: 100.0, 2: 70.0}))] == [2]
    assert better(elastic(times={1: 100.0, 2: 71.0})) == []
    assert [one.gpus for one in better(elastic(times={1: 100.0, 2: 60.0, 4: 49.0}))] == [2, 4]


def test_of_what_nothing_is_known_the_smallest_is_the_best() -> None:
    assert better(elastic(times={1: 100.0, 2: 100.0, 8: 100.0})) == []


def test_a_gang_starts_on_the_nodes_that_are_left() -> None:
    for nodes in (2, 3, 4):
        (outcome,) = start(board(nodes=nodes, gpus=1), gang("gang", 2, 4))
        assert taken(outcome) == (nodes, nodes)
    assert start(board(nodes=1, gpus=1), gang("gang", 2, 4))[0].start == ()


def test_it_goes_back_to_the_node_that_has_its_checkpoint() -> None:
    seen = board(nodes=3, gpus=2)
    seen.enter(ask("other", whole=True), (Place(0, (0,)),), 0.0)
    assert start(seen, ask("new", whole=True))[0].start[0].node == 0
    seen = board(nodes=3, gpus=2)
    seen.enter(ask("other", whole=True), (Place(0, (0,)),), 0.0)
    back = gang("gang", 2, 2)
    back.home = "node-2"
    assert [place.node for place in start(seen, back)[0].start] == [2, 0]


def test_more_than_the_least_is_room_that_nobody_behind_it_starts_in() -> None:
    seen = board(gpus=4)
    first, second = start(seen, elastic(), ask("behind", gpus=2, whole=True))
    assert (taken(first), taken(second)) == ((1, 2), (1, 2))
    check(seen)


def test_more_than_the_least_delays_no_reservation() -> None:
    seen = board(gpus=4)
    seen.enter(ask("running", whole=True, runtime_s=50.0), (Place(0, (0,)),), 0.0)
    promised = ask("promised", gpus=4, whole=True, priority=1)
    outcomes = start(seen, promised, elastic(times={1: 40.0, 2: 20.0}))
    assert outcomes[0].reserved_s == 50.0
    assert taken(outcomes[1]) == (1, 2)
    seen = board(gpus=4)
    seen.enter(ask("running", whole=True, runtime_s=50.0), (Place(0, (0, 1)),), 0.0)
    promised = ask("promised", gpus=3, whole=True, priority=1)
    # One GPU is left beside the promised three; two would delay them by 10 s.
    outcomes = start(seen, promised, elastic(times={1: 120.0, 2: 60.0}))
    assert outcomes[0].reserved_s == 50.0
    assert taken(outcomes[1]) == (1, 1)


def test_a_quota_limits_the_size() -> None:
    settings = PolicySettings(teams={"red": TeamSettings(max_gpus=3)})
    (outcome,) = start(board(gpus=4), elastic(team="red"), settings=settings)
    assert taken(outcome) == (1, 2)
    held = {"red": Held()}
    held["red"].add(ask("other", gpus=2, whole=True, team="red"))
    front = [elastic(team="red")]
    (outcome,) = decide(board(gpus=4), front, held, now_s=0.0, settings=settings)
    assert taken(outcome) == (1, 1)
    assert (held["red"].gpus, held["red"].running) == (2, 1), "what was given is not changed"


def runs(seen: Board, one: Ask, *gpus: int) -> Runner:
    places = (Place(0, gpus),)
    seen.enter(one, places, 0.0)
    return Runner(one, places, 0.0, preemptible=True)


def grown(seen: Board, one: Ask, runner: Runner, **standing: float) -> list[int]:
    standing = {"left_s": 200.0, "undone_s": 10.0, "restart_s": 20.0} | standing
    return [each.gpus for each in grows(one, runner, Standing(**standing), seen, 0.0)]


def test_a_run_grows_into_room_where_that_saves_twice_what_it_costs() -> None:
    seen, one = board(gpus=4), elastic()
    runner = runs(seen, one, 0)
    assert grown(seen, one, runner) == [4, 2]
    # Four GPUs save 150 s of 200, two 100 s.
    assert grown(seen, one, runner, undone_s=40.0) == [4]
    assert grown(seen, one, runner, undone_s=60.0) == []
    assert grown(seen, one, runner, left_s=60.0) == []
    assert seen.nodes[0].gpus[0].occupants, "the board is as before"


def test_a_run_grows_only_where_there_is_room_beside_all_others() -> None:
    seen, one = board(gpus=4), elastic()
    runner = runs(seen, one, 0)
    seen.enter(ask("other", whole=True), (Place(0, (3,)),), 0.0)
    assert grown(seen, one, runner) == [2]
    seen.enter(ask("another", gpus=2, whole=True), (Place(0, (1, 2)),), 0.0)
    assert grown(seen, one, runner) == []


def test_a_run_grows_only_as_far_as_it_pays_and_never_shrinks() -> None:
    seen, one = board(gpus=4), elastic(times={1: 400.0, 2: 390.0, 4: 380.0})
    assert grown(seen, one, runs(seen, one, 0), left_s=1e6) == []
    seen, one = board(gpus=4), elastic()
    two = one.larger[0]
    two.larger = one.larger
    assert grown(seen, two, runs(seen, two, 0, 1)) == [4]


@st.composite
def elastics(draw: st.DrawFn) -> Ask:
    share = draw(st.floats(0.5, 1.0))
    times = {gpus: 200.0 / gpus**share for gpus in (1, 2)}
    return elastic(f"elastic{draw(st.integers(0, 999)):03d}", times, team="red")


@given(asks(most=6), st.lists(elastics(), max_size=3, unique_by=lambda one: one.run_id))
def test_whatever_the_sizes_the_same_runs_start_and_none_is_delayed(
    others: list[Ask], some: list[Ask]
) -> None:
    """The larger sizes take room that is left: who starts and who is promised when is as before."""

    def fixed(one: Ask) -> Ask:
        return ask(one.run_id, gpus=one.gpus, whole=True, runtime_s=one.median_s, team=one.team)

    settings = PolicySettings(teams={"red": TeamSettings(max_gpus=3)})
    free, tight = board(nodes=2, gpus=2), board(nodes=2, gpus=2)
    chosen = start(free, *some, *others, settings=settings)
    least = start(tight, *(fixed(one) for one in some), *others, settings=settings)
    check(free)
    assert [bool(one.start) for one in chosen] == [bool(one.start) for one in least]
    assert [one.reserved_s for one in chosen] == [one.reserved_s for one in least]
    for one, other in zip(chosen, least, strict=True):
        assert worth(one.ask) <= worth(other.ask)
