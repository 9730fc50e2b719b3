"""headroom = capacity - reserve - max(promised, observed), for host, processors and each GPU."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headway.model.lease import Admit, Demand, GpuGrant, Lease, Sharing, Wait
from headway.model.node import (
    Capacity,
    Gpu,
    GpuProcess,
    GpuReading,
    HostReading,
    Node,
    NodeReading,
    NodeState,
    Reserve,
)
from headway.policy.admission import judge
from headway.policy.headroom import compute_headroom
from headway.units import GIB

AT = datetime(2026, 1, 1, tzinfo=UTC)
A = Gpu("GPU-a", 0, "NVIDIA H200", 100 * GIB, reserve_bytes=4 * GIB)
B = Gpu("GPU-b", 1, "NVIDIA H200", 100 * GIB)
NODE = Node("n", "gpu", Capacity(8, 64 * GIB, (A, B)), Reserve(1.0, 4 * GIB))


def lease(memory_gib: int = 8, *, cpus: float = 2.0, gpus=(), ports=()) -> Lease:
    return Lease(1, "r", 1, "n", "t", memory_gib * GIB, cpus, tuple(gpus), tuple(ports), AT, AT)


def reading(used_gib: int = 0, gpus=(), *, error: str = "") -> NodeReading:
    host = HostReading(64 * GIB, used_gib * GIB, 0.0, GIB)
    return NodeReading(AT, host, None if error else tuple(gpus), error)


def gpu(of: Gpu, used_gib: int = 0, *pids: int) -> GpuReading:
    processes = tuple(GpuProcess(pid, None) for pid in pids)
    return GpuReading(
        of.uuid, of.index, of.name, of.memory_bytes, used_gib * GIB, processes=processes
    )


def test_an_empty_node_offers_all_but_its_reserve():
    headroom = compute_headroom(NODE, [])
    assert (headroom.host_memory_bytes, headroom.cpus) == (60 * GIB, 7.0)
    assert [it.memory_bytes for it in headroom.gpus] == [96 * GIB, 100 * GIB]
    assert all(it.idle and it.utilisation_frac == 0 for it in headroom.gpus)
    assert [it.whole_bytes for it in headroom.gpus] == [96 * GIB, 100 * GIB]
    assert (headroom.closed_reason, headroom.gpu_error, headroom.ports_taken) == ("", "", ())


@pytest.mark.parametrize(
    ("promised_gib", "observed_gib", "left_gib"),
    [(0, 0, 60), (20, 0, 40), (20, 10, 40), (20, 20, 40), (20, 30, 30), (0, 64, -4), (70, 0, -10)],
)
def test_the_larger_of_promised_and_observed_counts(promised_gib, observed_gib, left_gib):
    headroom = compute_headroom(NODE, [lease(promised_gib)], reading(observed_gib))
    assert headroom.host_memory_bytes == left_gib * GIB


def test_leases_add_up_whatever_their_age():
    headroom = compute_headroom(NODE, [lease(10, ports=(9, 7)), lease(5, cpus=0.5, ports=(8,))])
    assert (headroom.host_memory_bytes, headroom.cpus) == (45 * GIB, 4.5)
    assert headroom.ports_taken == (7, 8, 9)


@pytest.mark.parametrize(
    ("promised_gib", "used_gib", "left_gib"),
    [(0, 0, 96), (30, 10, 66), (30, 40, 56), (0, 40, 56), (0, 100, -4)],
)
def test_each_gpu_has_its_own_account(promised_gib, used_gib, left_gib):
    grants = [GpuGrant("GPU-a", promised_gib * GIB)] if promised_gib else []
    headroom = compute_headroom(
        NODE, [lease(gpus=grants)], reading(gpus=[gpu(A, used_gib), gpu(B)])
    )
    assert [it.memory_bytes for it in headroom.gpus] == [left_gib * GIB, 100 * GIB]


def test_grants_on_one_gpu_add_up():
    shared = lease(gpus=[GpuGrant("GPU-a", 10 * GIB, utilisation_frac=0.3)])
    first = compute_headroom(NODE, [shared, shared]).gpus[0]
    assert (first.memory_bytes, first.utilisation_frac) == (76 * GIB, 0.6)
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
    assert (headroom.gpus, headroom.gpu_error) == ((), "driver mismatch")
    assert headroom.host_memory_bytes == 60 * GIB


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
    assert compute_headroom(node, []).closed_reason == closed


@pytest.mark.parametrize(
    ("promised", "observed", "counts"),
    [((0.3,), 0.9, 0.9), ((0.3,), 0.1, 0.3), ((0.3,), None, 0.3), ((), 0.9, 0.0)],
)
def test_a_job_that_is_busier_than_predicted_counts_as_it_is(promised, observed, counts):
    leases = [lease(gpus=[GpuGrant("GPU-a", GIB, utilisation_frac=it)]) for it in promised]
    seen = replace(gpu(A), utilisation_frac=observed)
    headroom = compute_headroom(NODE, leases, reading(gpus=[seen, gpu(B)]))
    assert headroom.gpus[0].utilisation_frac == counts


def test_a_lost_gpu_offers_nothing_and_is_named():
    lost = NodeReading(AT, HostReading(64 * GIB, 0, 0.0, GIB), (gpu(A),), lost_gpus={"GPU-b": "x"})
    headroom = compute_headroom(NODE, [], lost)
    assert [it.uuid for it in headroom.gpus] == ["GPU-a"]
    assert (headroom.gpu_error, headroom.lost_gpus) == ("", ("gpu1 lost: x",))
    wait = judge(Demand(GIB, gpus=2, gpu_memory_bytes=GIB), headroom)
    assert isinstance(wait, Wait)
    assert wait.reason.endswith("; gpu1 lost: x")
    assert isinstance(judge(Demand(GIB, gpus=1, gpu_memory_bytes=GIB), headroom), Admit)
