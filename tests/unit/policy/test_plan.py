import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.lease import Demand, GpuGrant, Lease, Resource, Sharing, Wait
from headway.model.node import (
    Capacity,
    Gpu,
    GpuReading,
    HostReading,
    Node,
    NodePorts,
    NodeReading,
    NodeState,
    PortUse,
)
from headway.model.run import Span
from headway.policy.fit import WaitingRun
from headway.policy.headroom import compute_headroom
from headway.policy.plan import Plan, Start, Stay, plan
from headway.policy.pool import NodeView, RunningRun
from headway.policy.settings import PolicySettings, Share, TeamSettings
from headway.units import GIB
from tests.unit.policy.boards import queue

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def node(name: str, gpus: int = 2, *, state: NodeState = NodeState.READY) -> Node:
    has = tuple(Gpu(f"{name}-{at}", at, "NVIDIA A100", 24 * GIB) for at in range(gpus))
    return Node(name, "pool", Capacity(16.0, 64 * GIB, has), state=state)


def lease(run_id: str, where: str, *gpus: int, memory: int = 24, **more: object) -> Lease:
    whole = memory == 24
    grants = tuple(
        GpuGrant(
            f"{where}-{at}",
            memory * GIB,
            Sharing.WHOLE if whole else Sharing.SHARED,
            0.0 if whole else 0.5,
        )
        for at in gpus
    )
    values = {
        "granted_at": NOW - HOUR,
        "expires_at": NOW + HOUR,
        "predicted_end_at": NOW + 4 * HOUR,
    } | more
    return Lease(1, run_id, 1, where, "t", 8 * GIB, 1.0, grants, {}, **values)  # type: ignore[arg-type]


def waiting(run_id: str, *, gpus: int = 1, memory: int = 24, **more: object) -> WaitingRun:
    demand = Demand(
        4 * GIB,
        gpus=gpus,
        gpu_memory_bytes=memory * GIB,
        sharing=Sharing.WHOLE if memory == 24 else Sharing.SHARED,
        gpu_utilisation_frac=0.5,
    )
    values = {"submitted_at": NOW - HOUR, "median_s": 3600.0, "high_s": 7200.0} | more
    return WaitingRun.of(run_id, demand, settings=PolicySettings(), **values)  # type: ignore[arg-type]


def made(
    nodes: list[NodeView],
    line: list[WaitingRun],
    running: list[RunningRun] | None = None,
    **knobs: object,
) -> Plan:
    settings = PolicySettings(**knobs)  # type: ignore[arg-type]
    front = queue(*line, settings=settings, gpus=4).front(NOW.timestamp())
    return plan(nodes, front, running or [], now=NOW, settings=settings)


def only_stay(got: Plan) -> Stay:
    (entry,) = got.entries
    assert isinstance(entry, Stay)
    return entry


def test_a_run_starts_with_the_grants_of_its_node() -> None:
    got = made([NodeView(node("a"))], [waiting("r", memory=10)])
    (start,) = got.entries
    assert isinstance(start, Start)
    assert start.admits[0].node == "a"
    assert start.admits[0].gpus == (GpuGrant("a-0", 10 * GIB, Sharing.SHARED, 0.5),)


def test_the_reason_has_the_numbers() -> None:
    full = NodeView(node("a", 1), (lease("x", "a", 0, memory=16),))
    stay = only_stay(made([full], [waiting("r", memory=12)]))
    assert stay.wait.resource is Resource.GPU_MEMORY
    assert stay.wait.reason == (
        "needs 12.0 GiB on one GPU; at most 8.0 GiB is free for it, on a/gpu0"
    )
    assert stay.reserved == ("a",)


@pytest.mark.parametrize("use", [PortUse.BOUND, PortUse.PUBLISHED])
def test_a_port_is_waited_for_to_the_end_of_who_has_it_unless_an_engine_publishes_it(
    use: PortUse,
) -> None:
    """Also by the second in the line, which finds it with the first."""
    here = replace(node("a"), ports=NodePorts(use))
    has = replace(lease("x", "a", 0), ports={6006: 6006 if use is PortUse.BOUND else 29_500})
    line = [waiting("b"), waiting("c", gpus=0)]
    for each in line:
        each.ports = frozenset({6006})
    running = [RunningRun("x", left=Span(3600.0, 3600.0, 3600.0))]
    for each in line:
        each.lasts = Span(3600.0, 3600.0, 3600.0)
    first, second = made([NodeView(here, (has,))], line, running, reservations=4).entries
    if use is PortUse.PUBLISHED:
        assert isinstance(first, Start)
        assert isinstance(second, Start)
        return
    assert isinstance(first, Stay)
    assert isinstance(second, Stay)
    assert first.wait.reason == "needs port 6006 of a node, which another run has"
    assert (first.expected_at, second.expected_at) == (NOW + HOUR, NOW + 2 * HOUR)


def test_of_a_scarce_port_its_holder_of_unknown_length_is_named_and_nobody_else() -> None:
    here = replace(node("a", 2), ports=NodePorts(PortUse.BOUND))
    has = replace(lease("web", "a", 1), ports={6006: 6006})
    asks = waiting("b", gpus=0)
    asks.ports = frozenset({6006})
    running = [RunningRun("session", name="session"), RunningRun("web", name="web")]
    stay = only_stay(made([NodeView(here, (lease("session", "a", 0), has))], [asks], running))
    assert stay.unknown == "nothing is known of how long web runs"


def test_the_expected_start_goes_by_what_is_left_of_those_who_run() -> None:
    """Not by the lease's upper quantile, four hours from now."""
    full = NodeView(node("a", 1), (lease("x", "a", 0),))
    left = Span(1800.0, 3600.0, 7200.0)
    stay = only_stay(made([full], [waiting("r")], [RunningRun("x", left=left)]))
    assert (stay.earliest_at, stay.expected_at) == (NOW + HOUR / 2, NOW + HOUR)
    assert stay.latest_at == NOW + 2 * HOUR


def test_a_lack_of_cpus_is_said_with_its_node() -> None:
    full = NodeView(node("a", 0), (lease("x", "a", memory=1, predicted_end_at=NOW + HOUR),))
    full = replace(full, leases=(replace(full.leases[0], cpus=15.5),))
    line = [WaitingRun.of("r", Demand(GIB, 1.0), NOW - HOUR, settings=PolicySettings())]
    stay = only_stay(made([full], line))
    assert stay.wait.resource is Resource.CPUS
    assert stay.wait.reason == "needs 1 CPU; at most 0.5 is free for it, on a"


def test_what_is_free_but_never_on_one_node_is_said_of_the_nearest() -> None:
    """Host memory is free on a, the GPU on b; c has no GPU at all, so it is not near."""
    a = NodeView(node("a", 1), (lease("x", "a", 0),))
    b = NodeView(node("b", 1), (lease("y", "b"),))
    b = replace(b, leases=(replace(b.leases[0], host_memory_bytes=62 * GIB),))
    c = NodeView(node("c", 0))
    stay = only_stay(made([b, c], [waiting("r")]))
    assert stay.wait.resource is Resource.HOST_MEMORY
    assert stay.wait.reason == (
        "needs 4.0 GiB of host memory; at most 2.0 GiB is free for it, on b, "
        "of the nodes that lack the least"
    )
    stay = only_stay(made([a, b, c], [waiting("r")]))
    assert stay.wait.resource is Resource.GPUS
    assert stay.wait.reason == (
        "needs 1 whole GPU(s) on one node; none is free now, on a, of the nodes that lack the least"
    )


@pytest.mark.parametrize(
    ("promised_at", "said"),
    [
        (NOW + HOUR, "; if it still waits at 13:00 UTC, it goes before all others from then on"),
        (
            NOW + 24 * HOUR,
            "; if it still waits at 06 Jan 12:00 UTC, it goes before all others from then on",
        ),
        (
            NOW - HOUR,
            "; it goes first now, since it has waited past 11:00 UTC",
        ),
    ],
)
def test_the_promise_is_told_with_it(promised_at: datetime, said: str) -> None:
    stay = Stay("r", 2, Wait(Resource.CPUS, "needs 1 CPU"), NOW, promised_at=promised_at)
    assert stay.sentence() == f"needs 1 CPU; number 2 in the queue{said}"


@pytest.mark.parametrize(
    ("expected", "latest", "said"),
    [
        (HOUR, 4 * HOUR, "number 2 in the queue, expected to start about 13:00 (13:00–16:00) UTC"),
        (
            HOUR,
            24 * HOUR,
            "number 2 in the queue, expected to start about 13:00 (13:00–06 Jan 12:00) UTC",
        ),
        (13 * HOUR, 13 * HOUR, "number 2 in the queue, expected to start about 06 Jan 01:00 UTC"),
        (None, None, "number 2 in the queue"),
    ],
)
def test_a_wait_is_told_in_one_sentence(
    expected: timedelta | None, latest: timedelta | None, said: str
) -> None:
    stay = Stay(
        "r",
        2,
        Wait(Resource.CPUS, "needs 1 CPU"),
        NOW,
        expected_at=None if expected is None else NOW + expected,
        latest_at=None if latest is None else NOW + latest,
    )
    assert stay.sentence() == f"needs 1 CPU; {said}"


def test_what_fits_only_a_drained_node_says_so() -> None:
    large = replace(node("large", gpus=4, state=NodeState.DRAINING), state_reason="new fan")
    stay = only_stay(made([NodeView(large), NodeView(node("small"))], [waiting("r", gpus=4)]))
    assert stay.wait.resource is Resource.NODE
    assert stay.wait.reason == "node large is draining (new fan)"
    assert stay.expected_at is None


def test_a_named_node_is_kept_to() -> None:
    views = [NodeView(node("a")), NodeView(node("b"), (lease("x", "b", 0, 1),))]
    assert only_stay(made(views, [waiting("r", node="b")])).reserved == ("b",)


def test_a_gang_starts_everywhere_or_waits_with_a_reservation() -> None:
    views = [NodeView(node("a")), NodeView(node("b"))]
    (start,) = made(views, [waiting("g", gpus=2, nodes=2)]).entries
    assert isinstance(start, Start)
    assert {admit.node for admit in start.admits} == {"a", "b"}
    busy = [views[0], NodeView(node("b"), (lease("x", "b", 0),))]
    stay = only_stay(made(busy, [waiting("g", gpus=2, nodes=2)]))
    assert set(stay.reserved) == {"a", "b"}
    assert stay.wait.reason == ("needs 2 nodes at once with 2 GPU(s) on each; 1 has room now (a)")


def test_what_the_ranks_of_a_gang_hold_is_one_runs() -> None:
    knobs = {"teams": {"vision": TeamSettings(max_running=2)}}
    views = [
        NodeView(node("a"), (lease("g", "a", 0, 1),)),
        NodeView(node("b"), (lease("g-rank1", "b", 0, 1),)),
    ]
    running = [
        RunningRun("g", team="vision", preemptible=True),
        RunningRun("g-rank1", team="vision", gang_id="g"),
    ]
    urgent = waiting("u", gpus=2, nodes=2, priority=5)
    done = made(views, [urgent], running, **knobs)
    assert [(one.run_id, one.for_run_id) for one in done.preempts] == [("g", "u")]
    # One run of two: another of the team may start.
    free = [*views, NodeView(node("c"))]
    (start,) = made(free, [waiting("v", team="vision")], running, **knobs).entries
    assert isinstance(start, Start)


def test_quota_of_a_team() -> None:
    view = NodeView(node("a"), (lease("x", "a", 0),))
    teams = {"red": TeamSettings(max_gpus=1)}
    got = made([view], [waiting("r", team="red")], [RunningRun("x", team="red")], teams=teams)
    stay = only_stay(got)
    assert stay.wait.resource is Resource.QUOTA
    assert stay.wait.reason == "needs 1 GPU(s); team red holds 1 of its 1"


def test_quota_of_a_user() -> None:
    view = NodeView(node("a", 4), (lease("x", "a", 0), lease("y", "a", 1)))
    users = {"ada": Share(max_gpus=1), "*": Share(max_gpus=2)}
    teams = {"red": TeamSettings(max_gpus=4, users=users)}
    running = [
        RunningRun("x", team="red", user="ada", left=Span(600.0, 1200.0, 2400.0)),
        RunningRun("y", team="red", user="eve", left=Span(60.0, 60.0, 60.0)),
    ]
    asked = [waiting("r", team="red", user="ada"), waiting("s", team="red", user="eve")]
    stay, start = made([view], asked, running, teams=teams).entries
    assert isinstance(stay, Stay)
    assert stay.wait.resource is Resource.QUOTA
    assert stay.wait.reason == "needs 1 GPU(s); ada of team red holds 1 of its 1"
    # Not when one of another user of the team ends, which is sooner.
    assert stay.expected_at == NOW + timedelta(seconds=1200)
    assert isinstance(start, Start)  # the first one's quota keeps nobody else waiting


def test_a_preemptible_run_stops_for_a_higher_priority_only() -> None:
    view = NodeView(node("a", 1), (lease("x", "a", 0),))
    running = [RunningRun("x", preemptible=True, priority=1)]
    assert made([view], [waiting("same", priority=1)], running).preempts == ()
    got = made([view], [waiting("urgent", priority=2)], running)
    assert [(one.run_id, one.for_run_id) for one in got.preempts] == [("x", "urgent")]
    assert "x, of a lower priority" in only_stay(got).wait.reason
    stopping = [RunningRun("x", preemptible=True, priority=1, stopping=True)]
    assert made([view], [waiting("urgent", priority=2)], stopping).preempts == ()
    keeps = [RunningRun("x", priority=1)]
    assert made([view], [waiting("urgent", priority=2)], keeps).preempts == ()


def test_no_more_is_stopped_than_helps_and_its_room_is_kept() -> None:
    leases = (lease("old", "a", 0, granted_at=NOW - 9 * HOUR), lease("new", "a", 1))
    running = [RunningRun("old", preemptible=True), RunningRun("new", preemptible=True)]
    line = [waiting("urgent", priority=1), waiting("small", memory=4, median_s=1.0, high_s=1.0)]
    got = made([NodeView(node("a"), leases)], line, running)
    assert [one.run_id for one in got.preempts] == ["new"]
    two = made([NodeView(node("a"), leases)], [waiting("u", priority=1, gpus=2)], running)
    assert {one.run_id for one in two.preempts} == {"old", "new"}
    never = made([NodeView(node("a"), leases)], [waiting("u", priority=1, gpus=3)], running)
    assert never.preempts == ()


def test_the_run_of_another_team_that_nothing_is_known_of_has_no_name() -> None:
    view = NodeView(node("a", 1), (lease("x", "a", 0, predicted_end_at=None),))
    running = RunningRun("x", name="secret-project", team="blue")
    stay = only_stay(made([view], [waiting("r", team="red")], [running]))
    assert stay.unknown == "nothing is known of how long a run of another team runs"
    assert "secret" not in stay.sentence()


def test_a_start_that_recedes_says_so() -> None:
    stay = Stay(
        "r", 2, Wait(Resource.CPUS, "needs 1 CPU"), NOW,
        expected_at=NOW + 2 * HOUR, first_said_latest_at=NOW + HOUR,
    )  # fmt: skip
    assert stay.sentence().endswith(
        "expected to start about 14:00 UTC, which is later than was said at first: by 13:00"
    )


def test_behind_a_run_of_unknown_length_no_date_is_made_up() -> None:
    view = NodeView(node("a", 1), (lease("x", "a", 0, predicted_end_at=None),))
    stay = only_stay(made([view], [waiting("r")], [RunningRun("x", name="vgg\n16")]))
    assert (stay.expected_at, stay.latest_at) == (None, None)
    assert (
        "number 1 in the queue, start not known: nothing is known of how long vgg\\n16 runs; "
        in stay.sentence()
    )
    assert stay.reserved == ("a",)


def test_one_of_unknown_length_hides_nothing_but_its_own_place() -> None:
    views = [NodeView(node("a", 1), (lease("x", "a", 0),)), NodeView(node("b", 1))]
    views[1] = replace(views[1], leases=(lease("y", "b", 0),))
    running = [RunningRun("x", name="x"), RunningRun("y", left=Span(60.0, 60.0, 60.0))]
    line = [
        waiting("r1", name="first", submitted_at=NOW - 2 * HOUR),
        waiting("r2", name="second", submitted_at=NOW - HOUR),
    ]
    first, second = made(views, line, running).entries
    assert isinstance(first, Stay)
    assert isinstance(second, Stay)
    assert first.expected_at == NOW + timedelta(seconds=60)
    assert second.unknown == "nothing is known of how long x runs"


def test_a_run_that_its_quota_holds_starts_when_one_of_its_team_ends() -> None:
    view = NodeView(node("a", 4), (lease("x", "a", 0), lease("y", "a", 1)))
    teams = {"red": TeamSettings(max_gpus=1)}
    running = [
        RunningRun("x", team="red", left=Span(600.0, 1200.0, 2400.0)),
        RunningRun("y", team="blue", left=Span(60.0, 60.0, 60.0)),
    ]
    stay = only_stay(made([view], [waiting("r", team="red")], running, teams=teams))
    assert stay.expected_at == NOW + timedelta(seconds=1200)


def test_only_the_window_is_planned_for() -> None:
    line = [waiting(f"r{at}", submitted_at=NOW - at * HOUR) for at in range(9)]
    got = made([NodeView(node("a"))], line, window=3)
    assert [one.run_id for one in got.entries] == ["r8", "r7", "r6"]
    assert [one.position for one in got.entries] == [1, 2, 3]


_runs = st.builds(
    waiting,
    run_id=st.uuids().map(str),
    gpus=st.integers(0, 3),
    memory=st.sampled_from([1, 8, 12, 24]),
    submitted_at=st.integers(0, 5).map(lambda hours: NOW - hours * HOUR),
    high_s=st.sampled_from([None, 3600.0, 36000.0]),
    nodes=st.integers(1, 2),
    team=st.sampled_from(["red", "blue"]),
    priority=st.integers(0, 1),
    promised_s=st.sampled_from([None, 0.0, 1e12]),
)


@given(st.lists(_runs, max_size=10, unique_by=lambda run: run.run_id), st.integers(0, 24))
def test_the_plan_is_the_same_for_all_and_never_above_headroom(
    line: list[WaitingRun], foreign_gib: int
) -> None:
    host = HostReading(64 * GIB, foreign_gib * GIB, 0.1, GIB)
    used = tuple(
        GpuReading(f"b-{at}", at, "NVIDIA A100", 24 * GIB, foreign_gib * GIB * at)
        for at in range(2)
    )
    views = [
        NodeView(node("a"), (lease("x", "a", 0, memory=12), lease("y", "a", 1))),
        NodeView(node("b"), (), NodeReading(NOW, host, used)),
        NodeView(node("c", state=NodeState.DRAINING)),
    ]
    running = [RunningRun("x", preemptible=True), RunningRun("y", preemptible=True)]
    got = made(views, line, running)
    shuffled = random.Random(1)
    for rows in (views, line, running):
        shuffled.shuffle(rows)
    for run in line:
        run.tag = None
    assert made(views, line, running) == got
    for view in views:
        room = compute_headroom(view.node, view.leases, view.reading)
        starts = [one for one in got.entries if isinstance(one, Start)]
        mine = [a for one in starts for a in one.admits if a.node == view.node.name]
        assert 4 * GIB * len(mine) <= max(room.host.free_bytes, 0)
        assert len(mine) <= max(room.host.free_load, 0)
        for gpu in room.gpus:
            grants = [g for admit in mine for g in admit.gpus if g.uuid == gpu.uuid]
            assert sum(g.memory_bytes for g in grants) <= max(gpu.free_bytes, 0)
            assert sum(g.utilisation_frac for g in grants) + gpu.load <= 1 + 1e-9
            if any(g.sharing is Sharing.WHOLE for g in grants):
                assert gpu.idle
                assert len(grants) == 1


def disk(free_gib: int) -> NodeReading:
    return NodeReading(NOW, HostReading(64 * GIB, 0, 0.1, free_gib * GIB), gpus=None)


def on_disk(run_id: str, gib: int) -> WaitingRun:
    demand = Demand(GIB, disk_bytes=gib * GIB)
    return WaitingRun.of(run_id, demand, NOW - HOUR, settings=PolicySettings(), median_s=60.0)


def test_a_disk_is_promised_once_and_what_it_lacks_is_said():
    views = [NodeView(node("a"), (), disk(50)), NodeView(node("b"), (), disk(80))]
    line = [on_disk("first", 60), on_disk("second", 30), on_disk("third", 40)]
    starts = {}
    stays = {}
    for entry in made(views, line).entries:
        if isinstance(entry, Start):
            starts[entry.run_id] = entry.admits[0].node
        else:
            stays[entry.run_id] = entry.wait
    assert starts == {"first": "b", "second": "a"}
    wait = stays["third"]
    assert wait.resource is Resource.NODE
    assert wait.reason == "needs 40.0 GiB of disk; at most 20.0 GiB is free for it, on b"
