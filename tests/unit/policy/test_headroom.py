"""headroom = capacity - reserve - Σ max(granted, own use) - foreign use: host and each GPU."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.gpu_health import GpuDrain, Sickness
from headway.model.lease import ANY_PORT, Admit, Demand, GpuGrant, Lease, Sharing, Wait
from headway.model.node import (
    Capacity,
    Gpu,
    GpuProcess,
    GpuReading,
    HostReading,
    MemoryMeans,
    Node,
    NodePorts,
    NodeReading,
    NodeState,
    PortUse,
    Reserve,
)
from headway.policy.admission import judge
from headway.policy.fit import WaitingRun
from headway.policy.headroom import compute_headroom, empty_host_bytes
from headway.policy.plan import Stay, plan
from headway.policy.pool import NodeView, RunningRun
from headway.policy.settings import PolicySettings
from headway.units import GIB

AT = datetime(2026, 1, 1, tzinfo=UTC)
A = Gpu("GPU-a", 0, "NVIDIA H200", 100 * GIB, reserve_bytes=4 * GIB)
B = Gpu("GPU-b", 1, "NVIDIA H200", 100 * GIB)
NODE = Node("n", "gpu", Capacity(8, 64 * GIB, (A, B)), Reserve(1.0, 4 * GIB))


def lease(
    memory_gib: int = 8, *, cpus: float = 2.0, gpus=(), ports=(), run: str = "r", at: datetime = AT
) -> Lease:
    return Lease(
        1,
        run,
        1,
        "n",
        "t",
        memory_gib * GIB,
        cpus,
        tuple(gpus),
        {port: port for port in ports},
        at,
        at,
    )


def reading(used_gib: int = 0, gpus=(), *, error: str = "", own_gib=()) -> NodeReading:
    host = HostReading(64 * GIB, used_gib * GIB, 0.0, GIB)
    own = {run: gib * GIB for run, gib in dict(own_gib).items()}
    return NodeReading(AT, host, None if error else tuple(gpus), error, run_host_bytes=own)


def gpu(of: Gpu, used_gib: int = 0, *pids: int) -> GpuReading:
    processes = tuple(GpuProcess(pid, None) for pid in pids)
    return GpuReading(
        of.uuid, of.index, of.name, of.memory_bytes, used_gib * GIB, processes=processes
    )


def test_an_empty_node_offers_all_but_its_reserve():
    headroom = compute_headroom(NODE, [])
    assert (headroom.host.free_bytes, headroom.host.free_load) == (60 * GIB, 7.0)
    assert [it.free_bytes for it in headroom.gpus] == [96 * GIB, 100 * GIB]
    assert all(it.idle and it.load == 0 for it in headroom.gpus)
    assert [it.whole_bytes for it in headroom.gpus] == [96 * GIB, 100 * GIB]
    assert (headroom.closed, headroom.gpu_error, headroom.ports.keys()) == ("", "", {ANY_PORT})


@pytest.mark.parametrize(
    ("promised_gib", "used_gib", "own_gib", "left_gib"),
    [
        (0, 0, {}, 60),
        (20, 0, {}, 40),
        (20, 10, {"r": 10}, 40),
        (20, 30, {"r": 30}, 30),  # it has outgrown its grant
        (20, 7, {"r": 4}, 40),  # the reserve of 4 is held back for the 3 of others
        (20, 10, {"r": 4}, 38),  # 6 are somebody else's
        (20, 10, {}, 34),  # whose they are is not known
        (20, 10, {"gone": 10}, 34),  # a container without a lease is as foreign
        (0, 64, {}, 0),
        (70, 0, {}, -10),
    ],
)
def test_grants_or_own_use_and_foreign_use_count(promised_gib, used_gib, own_gib, left_gib):
    headroom = compute_headroom(NODE, [lease(promised_gib)], reading(used_gib, own_gib=own_gib))
    assert headroom.host.free_bytes == left_gib * GIB


gibs = st.integers(0, 40)


@given(st.lists(st.tuples(gibs, gibs, st.booleans()), max_size=5), gibs)
def test_nothing_is_offered_that_is_granted_or_in_use(runs, foreign_gib):
    """Host and GPU alike, whatever of the runs' own use is known."""
    leases = [
        lease(granted, run=f"r{n}", gpus=[GpuGrant("GPU-b", granted * GIB)])
        for n, (granted, _, _) in enumerate(runs)
    ]
    used_gib = foreign_gib + sum(used for _, used, _ in runs)
    own = {f"r{n}": used for n, (_, used, known) in enumerate(runs) if known}
    held = tuple(GpuProcess(n, it * GIB, f"r{n}") for n, it in enumerate(own.values()))
    seen = replace(gpu(B, used_gib), processes=tuple(
        replace(each, run_id=run) for each, run in zip(held, own, strict=True)
    ))  # fmt: skip
    headroom = compute_headroom(NODE, leases, reading(used_gib, gpus=[gpu(A), seen], own_gib=own))
    for offered_bytes, capacity_gib, reserve_gib in (
        (headroom.host.free_bytes, 64, 4),
        (headroom.gpus[1].free_bytes, 100, 0),
    ):
        granted_gib = sum(granted for granted, _, _ in runs)
        assert offered_bytes <= (capacity_gib - used_gib) * GIB
        assert offered_bytes <= (capacity_gib - reserve_gib - granted_gib) * GIB
        if all(known for _, _, known in runs):
            held_gib = sum(max(run[:2]) for run in runs)
            exact_gib = capacity_gib - max(reserve_gib, foreign_gib) - held_gib
            assert offered_bytes == exact_gib * GIB
        # The ledger alone never offers less than it does with a reading.
    alone = compute_headroom(NODE, leases)
    assert headroom.host.free_bytes <= alone.host.free_bytes
    assert headroom.gpus[1].free_bytes <= alone.gpus[1].free_bytes


def test_leases_add_up_whatever_their_age():
    headroom = compute_headroom(NODE, [lease(10, ports=(9, 7)), lease(5, cpus=0.5, ports=(8,))])
    assert (headroom.host.free_bytes, headroom.host.free_load) == (45 * GIB, 4.5)
    assert headroom.ports.keys() == {ANY_PORT, 7, 8, 9}


@pytest.mark.parametrize(
    ("promised_gib", "used_gib", "own_gib", "left_gib"),
    [
        (0, 0, None, 96),
        (30, 10, 10, 66),
        (30, 40, 40, 56),
        (0, 3, None, 96),  # the reserve of 4 is held back for it
        (0, 40, None, 60),
        (0, 100, None, 0),
        (40, 30, 0, 30),  # 40 are promised and unused, 30 are a stranger's
        (40, 30, None, 30),
        (40, 45, 15, 30),
        (40, 80, 50, 20),  # it holds more than it was granted beside a stranger
    ],
)
def test_each_gpu_has_its_own_account(promised_gib, used_gib, own_gib, left_gib):
    grants = [GpuGrant("GPU-a", promised_gib * GIB)] if promised_gib else []
    seen = gpu(A, used_gib, 4711)
    if own_gib is not None:
        seen = replace(seen, processes=(*seen.processes, GpuProcess(1, own_gib * GIB, "r")))
    headroom = compute_headroom(NODE, [lease(gpus=grants)], reading(gpus=[seen, gpu(B)]))
    assert [it.free_bytes for it in headroom.gpus] == [left_gib * GIB, 100 * GIB]


def test_what_the_driver_keeps_is_part_of_the_reserve():
    """Newer drivers keep more than the usual reserve on every GPU: it is idle all the same."""
    for driver_gib, left_gib in ((1, 96), (6, 94)):
        seen = replace(gpu(A, driver_gib), driver_bytes=driver_gib * GIB)
        first = compute_headroom(NODE, [], reading(gpus=[seen, gpu(B)])).gpus[0]
        assert (first.free_bytes, first.idle, first.foreign) == (left_gib * GIB, True, False)


@pytest.mark.parametrize(
    ("processes", "foreign"),
    [
        ((GpuProcess(1, 10 * GIB, "r"), GpuProcess(2, 30 * GIB)), True),
        ((GpuProcess(1, 40 * GIB, "r"),), False),
        ((GpuProcess(1, None, "r"), GpuProcess(2, None)), False),  # perhaps all of it is its own
    ],
)
def test_a_stranger_beside_a_lease_is_noticed_where_the_driver_tells(processes, foreign):
    seen = replace(gpu(A, 40), processes=processes)
    held = lease(gpus=[GpuGrant("GPU-a", 40 * GIB)])
    first = compute_headroom(NODE, [held], reading(gpus=[seen, gpu(B)])).gpus[0]
    assert (first.foreign, first.idle) == (foreign, False)


@pytest.mark.parametrize(
    ("kept_by", "beside", "shares"),
    [
        (MemoryMeans.DRIVER_LIMIT, 10 * GIB, True),
        (MemoryMeans.DRIVER_LIMIT, None, True),
        (MemoryMeans.WATCH, 10 * GIB, True),
        (MemoryMeans.WATCH, None, False),  # who is watched has to be seen
        (MemoryMeans.MIG, 10 * GIB, False),
        (MemoryMeans.WHOLE, 10 * GIB, False),
    ],
)
def test_where_nothing_keeps_runs_to_their_memory_each_has_its_gpu_alone(kept_by, beside, shares):
    """Granted whole; and none is planned beside one that has not begun."""
    node = replace(NODE, capacity=replace(NODE.capacity, gpus=(replace(A, kept_by=kept_by),)))
    small = Demand(GIB, 0.1, gpus=1, gpu_memory_bytes=10 * GIB, gpu_utilisation_frac=0.1)
    seen = replace(gpu(A, 10), processes=(GpuProcess(1, beside, "r"),))
    held = lease(gpus=[GpuGrant("GPU-a", 10 * GIB, utilisation_frac=0.1)])
    answer = judge(small, compute_headroom(node, [held], reading(gpus=[seen])))
    assert isinstance(answer, Admit) == shares
    if isinstance(answer, Wait):
        assert "1 take(s) one run at a time" in answer.reason
    if beside is None:
        return
    made = plan(
        [NodeView(node, (), reading(gpus=[gpu(A)]))],
        [WaitingRun.of(run, small, AT, settings=PolicySettings()) for run in ("a", "b")],
        [],
        now=AT,
        settings=PolicySettings(),
    )
    assert sum(not isinstance(each, Stay) for each in made.entries) == (2 if shares else 1)


def test_a_gpu_that_a_stranger_blinds_says_that_it_takes_nothing_for_that():
    node = replace(NODE, capacity=replace(NODE.capacity, gpus=(A,)))
    seen = replace(gpu(A, 1), processes=(GpuProcess(1, None),))
    small = Demand(GIB, 0.1, gpus=1, gpu_memory_bytes=10 * GIB, gpu_utilisation_frac=0.1)
    answer = judge(small, compute_headroom(node, [], reading(gpus=[seen])))
    assert isinstance(answer, Wait)
    assert "1 take(s) nothing while a program that is no run's is there" in answer.reason
    assert "utilisation" not in answer.reason


def test_an_empty_node_is_taken_for_what_strangers_leave_of_it():
    assert empty_host_bytes(NODE, None) == 60 * GIB
    assert empty_host_bytes(NODE, reading(20, own_gib={"r": 20})) == 60 * GIB
    assert empty_host_bytes(NODE, reading(23, own_gib={"r": 20})) == 60 * GIB
    assert empty_host_bytes(NODE, reading(36, own_gib={"r": 20})) == 44 * GIB
    assert empty_host_bytes(NODE, reading(64)) == 0


def test_what_the_rank_of_a_gang_holds_is_no_strangers_use():
    """The plan counts ranks as their gang; what their containers hold is told by rank."""
    rank = lease(20, run="rank", gpus=[GpuGrant("GPU-b", 40 * GIB)])
    held = replace(gpu(B, 40), processes=(GpuProcess(1, 40 * GIB, "rank"),))
    seen = reading(20, gpus=[gpu(A, 100), held], own_gib={"rank": 20})
    wants = Demand(40 * GIB, gpus=1, gpu_memory_bytes=60 * GIB, gpu_utilisation_frac=0.0)
    made = plan(
        [NodeView(NODE, (rank,), seen)],
        [WaitingRun.of("w", wants, AT, settings=PolicySettings())],
        [RunningRun("rank", gang_id="gang")],
        now=AT,
        settings=PolicySettings(),
    )
    assert not isinstance(made.entries[0], Stay), made.entries[0]


def test_grants_on_one_gpu_add_up():
    shared = lease(gpus=[GpuGrant("GPU-a", 10 * GIB, utilisation_frac=0.3)])
    first = compute_headroom(NODE, [shared, shared]).gpus[0]
    assert (first.free_bytes, first.load) == (76 * GIB, 0.6)
    assert not first.idle
    assert not first.taken_whole


def test_a_whole_grant_takes_the_gpu():
    whole = lease(gpus=[GpuGrant("GPU-b", 100 * GIB, Sharing.WHOLE)])
    first, second = compute_headroom(NODE, [whole]).gpus
    assert (first.taken_whole, second.taken_whole) == (False, True)
    assert (first.idle, second.idle) == (True, False)


@pytest.mark.parametrize(
    ("used_gib", "pids", "idle"), [(0, (), True), (4, (), True), (5, (), False), (0, (17,), False)]
)
def test_strangers_keep_a_gpu_from_being_given_whole(used_gib, pids, idle):
    headroom = compute_headroom(NODE, [], reading(gpus=[gpu(A, used_gib, *pids), gpu(B)]))
    assert headroom.gpus[0].idle is idle


def test_gpus_that_cannot_be_read_offer_nothing():
    headroom = compute_headroom(NODE, [], reading(error="driver mismatch"))
    assert (headroom.gpus, headroom.gpu_error) == ([], "driver mismatch")
    assert headroom.host.free_bytes == 60 * GIB


def test_a_gpu_that_is_gone_offers_nothing():
    headroom = compute_headroom(NODE, [], reading(gpus=[gpu(B)]))
    assert [it.uuid for it in headroom.gpus] == ["GPU-b"]


@pytest.mark.parametrize(
    ("state", "reason", "closed"),
    [
        (NodeState.READY, "", ""),
        (NodeState.DRAINING, "new driver", "node n is draining (new driver)"),
        (NodeState.LOST, "", "node n is lost"),
    ],
)
def test_a_node_that_takes_nothing_says_why(state, reason, closed):
    node = Node("n", "gpu", NODE.capacity, NODE.reserve, state, reason)
    assert compute_headroom(node, []).closed == closed


@pytest.mark.parametrize(
    ("promised", "observed", "counts"),
    [((0.3,), 0.9, 0.9), ((0.3,), 0.1, 0.3), ((0.3,), None, 0.3), ((), 0.9, 0.0)],
)
def test_a_job_that_is_busier_than_predicted_counts_as_it_is(promised, observed, counts):
    leases = [lease(gpus=[GpuGrant("GPU-a", GIB, utilisation_frac=it)]) for it in promised]
    seen = replace(gpu(A), utilisation_frac=observed)
    headroom = compute_headroom(NODE, leases, reading(gpus=[seen, gpu(B)]))
    assert headroom.gpus[0].load == counts


def test_a_lost_gpu_offers_nothing_and_is_named():
    lost = NodeReading(AT, HostReading(64 * GIB, 0, 0.0, GIB), (gpu(A),), lost_gpus={"GPU-b": "x"})
    headroom = compute_headroom(NODE, [], lost)
    assert [it.uuid for it in headroom.gpus] == ["GPU-a"]
    assert (headroom.gpu_error, headroom.lost_gpus) == ("", ("gpu1 lost: x",))
    wait = judge(Demand(GIB, gpus=2, gpu_memory_bytes=GIB), headroom)
    assert isinstance(wait, Wait)
    assert wait.reason.endswith("; gpu1 lost: x (on n)")
    assert isinstance(judge(Demand(GIB, gpus=1, gpu_memory_bytes=GIB), headroom), Admit)


def test_a_drained_gpu_offers_nothing_and_is_told_with_what_it_has() -> None:
    sick = {"GPU-a": GpuDrain(AT, {Sickness.XID: "Xid 48", Sickness.ECC: "errors"})}
    read = NodeReading(AT, HostReading(64 * GIB, 0, 0.0, GIB), (gpu(A), gpu(B)))
    headroom = compute_headroom(replace(NODE, gpu_drains=sick), [], read)
    assert [room.uuid for room in headroom.gpus] == ["GPU-b"]
    assert headroom.lost_gpus == ("gpu0 drained: Xid 48; errors",)


def test_who_waits_for_a_gpu_is_told_whose_programs_are_on_it() -> None:
    process = GpuProcess(4711, 20 * GIB, user="alice", command="python train.py", since=AT)
    more = GpuProcess(4712, GIB, user="bob", command="vllm serve")
    held = replace(gpu(A), used_bytes=21 * GIB, processes=(more, process))
    quiet = replace(gpu(B), used_bytes=20 * GIB)
    headroom = compute_headroom(NODE, [], reading(gpus=[held, quiet]))
    wait = judge(Demand(GIB, gpus=1, gpu_memory_bytes=90 * GIB), headroom)
    assert isinstance(wait, Wait)
    since = f"{AT:%Y-%m-%d %H:%M} UTC"
    assert wait.reason.endswith(
        f"; gpu0 in use by alice's python train.py (pid 4711, since {since}) and 1 more (on n); "
        "gpu1 in use by programs that the driver does not name (on n)"
    )


def test_a_process_of_a_run_that_has_just_ended_is_told_as_no_stranger() -> None:
    ending = replace(gpu(A, 20), processes=(GpuProcess(1, 20 * GIB, "ended"),))
    headroom = compute_headroom(NODE, [], reading(gpus=[ending, gpu(B)]))
    assert (headroom.gpus[0].foreign, headroom.strangers) == (True, ())


def test_a_port_at_which_a_program_that_is_no_run_listens_is_waited_for() -> None:
    """Granted, the run would fail; an engine leads another port of the node to its program."""
    seen = replace(reading(), busy_ports=(6006, 12_345))
    asked = Demand(GIB, 1.0, ports=(12_345,))
    wait = judge(asked, compute_headroom(NODE, [lease(ports=(6006,))], seen))
    assert isinstance(wait, Wait)
    assert wait.reason == "needs port 12345 of a node, which a program that is no run has"
    wait = judge(
        replace(asked, ports=(6006,)), compute_headroom(NODE, [lease(ports=(6006,))], seen)
    )
    assert isinstance(wait, Wait)
    assert wait.reason == "needs port 6006 of a node, which another run has"
    published = replace(NODE, ports=NodePorts(PortUse.PUBLISHED))
    assert isinstance(judge(asked, compute_headroom(published, [], seen)), Admit)
    run = WaitingRun.of("r", asked, AT, settings=PolicySettings())
    (stay,) = plan([NodeView(NODE, (), seen)], [run], [], now=AT, settings=PolicySettings()).entries
    assert isinstance(stay, Stay)
    assert stay.expected_at is None
