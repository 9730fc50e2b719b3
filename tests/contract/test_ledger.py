"""What the ledger promises."""

import math
import multiprocessing
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.exc import StatementError

from headway.errors import (
    LeaseLost,
    LedgerError,
    LedgerMissing,
    LedgerUnreachable,
    NodeNameTaken,
    RunUnknown,
)
from headway.ledger import Ledger, admitting, database, pools
from headway.ledger.renewals import RenewalAnswer
from headway.ledger.tables import NodeRow
from headway.model.attempt_record import ProgressSnapshot
from headway.model.gpu_health import Sickness
from headway.model.lease import ANY_PORT, Demand, Fence, GpuGrant, Lease, Resource, Sharing, Wait
from headway.model.node import (
    FREE_PORTS,
    Capacity,
    Gpu,
    HostReading,
    MemoryMeans,
    Node,
    NodePorts,
    NodeReading,
    NodeState,
    PortUse,
    Reserve,
)
from headway.model.number_range import NumberRange
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, StepState
from headway.model.run_warning import Silent, SilentFailure
from headway.model.staged import CacheUse, Staging
from headway.model.start_forecast import StartForecast
from headway.model.trace import Trace
from headway.model.turn import Turn, VirtualClock
from headway.units import GIB
from tests.support.fence import fence_of, release
from tests.support.leading import admit_in_term, grant_in_term, term_in, wait_in_term
from tests.support.on_ledger import NOON, enqueue

SECOND_LEASE = (
    "INSERT INTO lease (run_id, attempt, node, term, token, host_memory_bytes, cpus, granted_at,"
    " expires_at) SELECT run_id, attempt, node, term, 'x', 1, 1, granted_at, expires_at FROM lease"
)
OK = Exit(ExitKind.OK, 0, "done")
NODE = Node(
    "node-a",
    "gpu",
    Capacity(4.0, 32 * GIB, (Gpu("GPU-0", 0, "V100", 16 * GIB), Gpu("GPU-1", 1, "V100", 16 * GIB))),
    Reserve(0.0, 2 * GIB),
)


@pytest.fixture(autouse=True)
def _has_a_node(ledger: Ledger) -> None:
    ledger.nodes.register(NODE, boot_id="boot", worker_token="worker")


def admit(ledger: Ledger, run_id: str, demand: Demand | None = None) -> Lease | Wait:
    wanted = demand or Demand(8 * GIB)
    return admit_in_term(ledger, run_id, "node-a", wanted)


def granted(ledger: Ledger, run_id: str, demand: Demand | None = None) -> Lease:
    enqueue(ledger, run_id)
    lease = admit(ledger, run_id, demand)
    assert isinstance(lease, Lease)
    return lease


def test_no_run_waits_and_holds_a_place_in_one_snapshot(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(ledger, "a")
    read = pools.live_leases

    def granted_meanwhile(*args: Any) -> Any:
        other = Ledger.open(ledger_url)
        assert isinstance(admit(other, "a"), Lease)
        other.close()
        return read(*args)

    monkeypatch.setattr(pools, "live_leases", granted_meanwhile)
    seen = ledger.pools.snapshot("gpu", {})
    assert (set(seen.waiting), seen.leases) == ({"a"}, ())
    monkeypatch.undo()
    seen = ledger.pools.snapshot("gpu", {})
    assert (set(seen.waiting), [lease.run_id for lease in seen.leases]) == (set(), ["a"])


def test_a_run_is_put_into_the_line_once(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    enqueue(ledger, "a", name="another")
    assert [run.name for run in ledger.runs.waiting("gpu")] == ["a"]


def test_the_line_is_by_priority_and_then_first_come(ledger: Ledger) -> None:
    enqueue(ledger, "late", submitted_at=NOON + timedelta(hours=1))
    enqueue(ledger, "early")
    enqueue(ledger, "urgent", priority=5, submitted_at=NOON + timedelta(hours=2))
    enqueue(ledger, "elsewhere", pool="cpu")
    assert [run.run_id for run in ledger.runs.waiting("gpu")] == ["urgent", "early", "late"]


def test_a_grant_holds_what_was_asked_and_moves_the_run(ledger: Ledger) -> None:
    demand = Demand(8 * GIB, cpus=2, gpus=1, gpu_memory_bytes=4 * GIB, ports=(6006,))
    lease = granted(ledger, "a", demand)
    assert lease.host_memory_bytes == 8 * GIB
    assert lease.gpus == (GpuGrant("GPU-0", 4 * GIB, Sharing.SHARED, 1.0),)
    assert lease.ports == {6006: 6006}
    assert 55 < (lease.expires_at - lease.granted_at).total_seconds() < 65
    record = ledger.runs.get("a")
    assert (record.state, record.node) == (RunState.CLAIMED, "node-a")
    assert ledger.leases.of_run("a") == lease
    again = admit(ledger, "a")
    assert isinstance(again, Wait)
    assert again.resource is Resource.TURN


def test_what_does_not_fit_waits_with_the_numbers(ledger: Ledger) -> None:
    granted(ledger, "a", Demand(20 * GIB))
    enqueue(ledger, "b")
    wait = admit(ledger, "b", Demand(12 * GIB))
    assert isinstance(wait, Wait)
    assert wait.resource is Resource.HOST_MEMORY
    assert "needs 12.0 GiB" in wait.reason
    assert "10.0 GiB" in wait.reason
    assert ledger.runs.get("b").state is RunState.WAITING


def test_an_expired_lease_still_counts(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    lease = grant_in_term(ledger, "a", "node-a", Demand(20 * GIB), ttl_s=-1.0)
    assert lease.expires_at < ledger.now()
    enqueue(ledger, "b")
    assert isinstance(admit(ledger, "b", Demand(20 * GIB)), Wait)


def test_a_lease_has_had_those_beside_it_that_held_its_gpu_meanwhile(ledger: Ledger) -> None:
    part = Demand(GIB, cpus=0.5, gpus=1, gpu_memory_bytes=4 * GIB, gpu_utilisation_frac=0.2)
    before = granted(ledger, "before", part)
    begin(ledger, before)
    ledger.leases.release(before.fence)
    own = granted(ledger, "own", part)
    other = granted(ledger, "other", part)
    waits = granted(ledger, "waits", part)
    elsewhere = granted(ledger, "elsewhere", Demand(GIB, cpus=0.5, gpus=1, sharing=Sharing.WHOLE))
    granted(ledger, "without", Demand(GIB, cpus=0.5))
    assert own.gpus[0].uuid == other.gpus[0].uuid == waits.gpus[0].uuid
    assert elsewhere.gpus[0].uuid != own.gpus[0].uuid
    begin(ledger, other)
    ledger.runs.finish(other.fence, OK, Measurement())
    ledger.leases.release(other.fence)
    ended, stays = ledger.leases.neighbours(own, 9)
    assert (ended.run_id, ended.team, ended.job) == ("other", "t", {"name": "x"})
    assert ended.granted_at == other.granted_at
    moments = [ended.granted_at, ended.started_at, ended.ended_at, ended.released_at]
    assert None not in moments
    assert moments == sorted(moments, key=str)
    assert (stays.run_id, stays.started_at, stays.released_at) == ("waits", None, None)
    assert [each.run_id for each in ledger.leases.neighbours(elsewhere, 9)] == []
    assert [each.run_id for each in ledger.leases.neighbours(own, 1)] == [ended.run_id]


def test_who_shared_a_gpu_is_found_by_node_and_end(ledger: Ledger) -> None:
    asked = (
        "EXPLAIN SELECT lease_id FROM lease WHERE node = 'node-a' "
        "AND (released_at > now() OR released_at IS NULL)"
    )
    with ledger.leases._database.transaction() as session:
        session.execute(text("SET LOCAL enable_seqscan = off"))
        steps = "\n".join(session.execute(text(asked)).scalars())
    assert "leases_of_node_by_end" in steps


def begin(ledger: Ledger, lease: Lease) -> None:
    ledger.runs.begin(lease.fence, container="c", runtime="docker", ttl_s=60.0)


def test_a_lease_keeps_the_disk_it_was_promised(ledger: Ledger) -> None:
    reading = NodeReading(NOON, HostReading(32 * GIB, GIB, 0.1, 50 * GIB))
    for run_id in ("a", "b"):
        enqueue(ledger, run_id)
    wanted = Demand(GIB, disk_bytes=30 * GIB)
    first = grant_in_term(ledger, "a", "node-a", wanted, reading=reading)
    assert first.disk_bytes == 30 * GIB
    second = admit_in_term(ledger, "b", "node-a", wanted, reading=reading)
    assert isinstance(second, Wait)
    assert "20.0 GiB is free for it, on node-a" in second.reason


def test_a_removed_node_is_gone_until_its_worker_joins_again(ledger: Ledger) -> None:
    assert ledger.nodes.remove("node-a")
    assert not ledger.nodes.remove("node-a")
    assert ledger.nodes.get("node-a") is None
    assert "node-a" not in {record.node.name for record in ledger.nodes.all()}
    reading = NodeReading(NOON, HostReading(32 * GIB, GIB, 0.1, GIB))
    assert not ledger.nodes.heartbeat("node-a", "worker", reading)
    enqueue(ledger, "a")
    assert isinstance(admit(ledger, "a"), Wait)
    ledger.nodes.register(NODE, boot_id="boot", worker_token="again")
    assert ledger.nodes.heartbeat("node-a", "again", reading)


SICK = {"GPU-0": {Sickness.XID: "Xid 48 (double bit ECC error)"}}


def on_a_gpu(sharing: Sharing = Sharing.WHOLE) -> Demand:
    return Demand(GIB, gpus=1, gpu_memory_bytes=GIB, sharing=sharing)


def test_a_sick_gpu_is_granted_to_nobody_until_it_is_well(ledger: Ledger) -> None:
    ledger.nodes.judge_gpus("node-a", "another", sick=SICK)
    assert ledger.nodes.get("node-a").node.gpu_drains == {}  # not by whom the node is not
    assert ledger.nodes.gpu_drains("nowhere") == ledger.nodes.gpu_drains("node-a") == {}
    ledger.nodes.judge_gpus("node-a", "worker", sick=SICK)
    ledger.nodes.judge_gpus("node-a", "worker", sick={"GPU-0": {Sickness.ECC: "errors"}})
    ledger.nodes.register(NODE, boot_id="boot", worker_token="worker")  # its worker starts anew
    drain = ledger.nodes.get("node-a").node.gpu_drains["GPU-0"]
    assert ledger.nodes.gpu_drains("node-a") == {"GPU-0": drain}
    assert drain.told == "Xid 48 (double bit ECC error); errors"
    assert [grant.uuid for grant in granted(ledger, "a", on_a_gpu()).gpus] == ["GPU-1"]
    enqueue(ledger, "b")
    waits = admit(ledger, "b", on_a_gpu())
    assert isinstance(waits, Wait)
    assert "gpu0 drained: Xid 48" in waits.reason
    ledger.nodes.judge_gpus("node-a", "worker", sick={}, well=["GPU-0"])
    assert isinstance(admit(ledger, "b", on_a_gpu()), Lease)


def test_the_database_refuses_a_grant_on_a_drained_gpu(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(ledger, "a")
    ledger.nodes.judge_gpus("node-a", "worker", sick={**SICK, "GPU-1": SICK["GPU-0"]})
    blind = replace(NODE, gpu_drains={})
    monkeypatch.setattr(
        admitting, "node_record", lambda row: SimpleNamespace(node=blind, reading=None)
    )
    with pytest.raises(LedgerError, match="takes no runs"):
        admit(ledger, "a", on_a_gpu())


def test_an_operator_says_only_of_a_drained_gpu_that_it_was_reset(ledger: Ledger) -> None:
    assert not ledger.nodes.gpu_was_reset("node-a", "GPU-0", actor="ann")
    ledger.nodes.judge_gpus("node-a", "worker", sick=SICK)
    assert ledger.nodes.gpu_was_reset("node-a", "GPU-0", actor="ann")
    assert ledger.nodes.get("node-a").node.gpu_drains["GPU-0"].reset_at is not None
    ledger.nodes.judge_gpus("node-a", "worker", sick=SICK)  # its agent does not agree
    assert ledger.nodes.get("node-a").node.gpu_drains["GPU-0"].reset_at is None
    with pytest.raises(LedgerError, match="breaks one of its rules"):
        ledger.nodes.judge_gpus("node-a", "worker", sick={"GPU-1": {}})


def test_a_drained_node_grants_nothing(ledger: Ledger) -> None:
    assert ledger.nodes.set_state("node-a", NodeState.DRAINING, "new driver")
    enqueue(ledger, "a")
    answer = admit(ledger, "a")
    assert isinstance(answer, Wait)
    assert "new driver" in answer.reason
    ledger.nodes.register(NODE, boot_id="boot", worker_token="worker-2")
    record = ledger.nodes.get("node-a")
    assert record is not None
    assert record.node.state is NodeState.DRAINING


def test_resizing_leaves_the_own_share_out(ledger: Ledger) -> None:
    lease = granted(ledger, "a", Demand(20 * GIB, ports=(7000,)))
    larger = ledger.leases.resize(
        lease.fence, Demand(28 * GIB, ports=(7000,)), reading=None, ttl_s=60
    )
    assert isinstance(larger, Lease)
    assert larger.host_memory_bytes == 28 * GIB
    too_large = ledger.leases.resize(lease.fence, Demand(31 * GIB), reading=None, ttl_s=60)
    assert isinstance(too_large, Wait)
    assert ledger.leases.of_run("a") == larger


def test_a_lease_grows_as_far_as_its_node_has_memory(ledger: Ledger) -> None:
    lease = granted(ledger, "a", Demand(GIB))
    assert ledger.leases.grow(lease.fence, 3 * GIB) == 3 * GIB
    assert ledger.leases.grow(lease.fence, 2 * GIB) == 3 * GIB  # never less
    other = granted(ledger, "b", Demand(20 * GIB))
    most = ledger.leases.grow(lease.fence, 100 * GIB)
    assert 3 * GIB < most <= 32 * GIB - 20 * GIB
    assert ledger.leases.grow(lease.fence, 100 * GIB) == most
    enqueue(ledger, "c")
    assert isinstance(admit(ledger, "c", Demand(GIB)), Wait)
    assert ledger.leases.of_run("b") == other
    release(ledger, "a")
    with pytest.raises(LeaseLost):
        ledger.leases.grow(lease.fence, 4 * GIB)


def test_resizing_never_shortens_what_the_guard_was_told(ledger: Ledger) -> None:
    lease = granted(ledger, "a")
    resized = ledger.leases.resize(lease.fence, Demand(4 * GIB), reading=None, ttl_s=1.0)
    assert isinstance(resized, Lease)
    assert resized.expires_at == lease.expires_at


def test_a_refusal_keeps_the_reading_that_it_went_by(ledger: Ledger) -> None:
    """By the older one the same run would be granted the same place again at once."""
    idle = NodeReading(NOON, HostReading(32 * GIB, GIB, 0.1, 50 * GIB), resting=("b",))
    full = NodeReading(ledger.now(), HostReading(32 * GIB, 31 * GIB, 0.1, 50 * GIB))
    enqueue(ledger, "a")
    lease = grant_in_term(ledger, "a", "node-a", Demand(8 * GIB), reading=idle)
    answer = ledger.leases.resize(lease.fence, Demand(8 * GIB), reading=full, ttl_s=60)
    assert isinstance(answer, Wait)
    record = ledger.nodes.get("node-a")
    assert record is not None
    assert record.reading == replace(full, resting=("b",))  # its worker's, which knows no newer
    assert ledger.leases.give_back(lease.fence)
    assert isinstance(admit_in_term(ledger, "a", "node-a", Demand(8 * GIB)), Wait)


def test_resizing_keeps_the_gpus_that_were_granted_where_they_will_do(ledger: Ledger) -> None:
    """The run's prediction is about them, and another one may be of another type."""
    small = Demand(GIB, gpus=1, gpu_memory_bytes=2 * GIB, gpu_utilisation_frac=0.3)
    lease = granted(ledger, "a", small)
    granted(ledger, "b", replace(small, gpu_memory_bytes=15 * GIB))
    less = replace(small, gpu_memory_bytes=GIB)  # by best fit it would go beside the other
    kept = ledger.leases.resize(lease.fence, less, reading=None, ttl_s=60)
    assert isinstance(kept, Lease)
    assert [grant.uuid for grant in kept.gpus] == ["GPU-0"]


def test_a_port_is_free_again_after_the_release(ledger: Ledger) -> None:
    granted(ledger, "a", Demand(GIB, ports=(6006,)))
    enqueue(ledger, "b")
    wait = admit(ledger, "b", Demand(GIB, ports=(6006,)))
    assert isinstance(wait, Wait)
    assert wait.resource is Resource.PORTS
    release(ledger, "a")
    assert isinstance(admit(ledger, "b", Demand(GIB, ports=(6006,))), Lease)


def test_a_claim_is_given_back_as_the_same_attempt(ledger: Ledger) -> None:
    lease = granted(ledger, "a")
    assert ledger.leases.give_back(lease.fence)
    record = ledger.runs.get("a")
    assert (record.state, record.attempt) == (RunState.WAITING, 1)
    assert record.reason == "its flow process did not begin: it waits for a place again"
    assert ledger.leases.of_run("a") is None
    assert ledger.leases.give_back(lease.fence)


def test_a_claim_that_is_given_back_brings_its_reason_along(ledger: Ledger) -> None:
    """The next plan has another one; until then its user would read nothing."""
    lease = granted(ledger, "a")
    ledger.leases.give_back(lease.fence, Wait(Resource.GPUS, "its GPUs cannot be read"))
    record = ledger.runs.get("a")
    assert (record.resource, record.reason) == (Resource.GPUS, "its GPUs cannot be read")


def test_a_claim_that_was_taken_up_since_it_was_read_is_not_given_back(ledger: Ledger) -> None:
    """A leader that was stopped in the middle of a pass goes on: its snapshot is old."""
    enqueue(ledger, "a")
    lease = grant_in_term(ledger, "a", "node-a", Demand(GIB), start_limit_s=0.0)
    read = ledger.leases.of_run("a")
    assert read is not None
    assert read.start_by is not None
    ledger.leases.take_up(lease.fence)
    assert not ledger.leases.give_back(read.fence, start_by=read.start_by)
    assert ledger.leases.of_run("a") is not None
    assert ledger.runs.get("a").state is RunState.CLAIMED


def test_a_requeued_run_is_not_admitted_before_its_last_attempt_is_cleaned_up(
    ledger: Ledger,
) -> None:
    lease = granted(ledger, "a")
    ledger.runs.begin(lease.fence, container="c", runtime="docker", ttl_s=60.0)
    gone = Exit(ExitKind.OUT_OF_MEMORY, 137, "killed")
    ledger.runs.requeue(fence_of(ledger, "a"), gone, demand_override={"host_memory_bytes": GIB})
    record = ledger.runs.get("a")
    assert (record.state, record.attempt, record.reason) == (RunState.WAITING, 2, "killed")
    assert record.demand_override == {"host_memory_bytes": GIB}
    assert isinstance(admit(ledger, "a"), Wait)
    release(ledger, "a")
    assert isinstance(admit(ledger, "a"), Lease)


def test_a_container_begins_only_under_its_lease(ledger: Ledger) -> None:
    lease = granted(ledger, "a")
    with pytest.raises(LeaseLost):
        ledger.runs.begin(
            replace(lease.fence, token="stolen"), container="c", runtime="docker", ttl_s=60.0
        )
    with pytest.raises(LeaseLost):
        ledger.runs.begin(
            replace(lease.fence, attempt=2), container="c", runtime="docker", ttl_s=60.0
        )
    ledger.runs.begin(lease.fence, container="c", runtime="docker", ttl_s=60.0)
    first = ledger.runs.get("a").started_at
    ledger.runs.begin(lease.fence, container="c", runtime="docker", ttl_s=60.0)
    assert ledger.runs.get("a").started_at == first


def test_the_lease_is_renewed_with_the_begin_of_a_container(ledger: Ledger) -> None:
    """Its guard may have died before it saw the container, which it counts from its start."""
    granted_then = granted(ledger, "a")
    ledger.runs.begin(granted_then.fence, container="c", runtime="docker", ttl_s=3600.0)
    lease, started_at = ledger.leases.of_run("a"), ledger.runs.get("a").started_at
    assert lease is not None
    assert started_at is not None
    assert lease.expires_at == started_at + timedelta(hours=1) > granted_then.expires_at


def test_a_team_that_runs_many_hides_nobodys_ended_runs(ledger: Ledger) -> None:
    for name, team in (("mine", "vision"), ("one", "speech"), ("two", "speech")):
        enqueue(ledger, name, team=team)
        ledger.runs.finish(fence_of(ledger, name), OK, Measurement(runtime_s=float(len(name))))
    assert [each.kind.team for each in ledger.runs.lasted(2)] == ["speech", "speech"]
    assert [each.runtime_s for each in ledger.runs.lasted(2, "vision")] == [4.0]


def test_runs_are_found_by_id_prefix_and_name(ledger: Ledger) -> None:
    enqueue(ledger, "abcd-1", name="one")
    enqueue(ledger, "abcd-2", name="two")
    enqueue(ledger, "xyzw-3", name="two", submitted_at=NOON + timedelta(hours=1))
    assert ledger.runs.find("abcd-1").name == "one"
    assert ledger.runs.find("xyzw").run_id == "xyzw-3"
    assert ledger.runs.find("two").run_id == "xyzw-3"
    for text_ in ("abcd", "nobody", "%", "'; DROP TABLE run; --"):
        with pytest.raises(RunUnknown):
            ledger.runs.find(text_)


def test_each_attempt_is_kept_with_what_it_waited_for_and_how_it_ended(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    wait_in_term(ledger, "a", Resource.CPUS, "needs 4 CPUs")
    first = granted(ledger, "a")
    ledger.runs.begin(first.fence, container="c", runtime="process", ttl_s=60.0)
    killed = Exit(ExitKind.OUT_OF_MEMORY, 137, "killed")
    ledger.runs.requeue(fence_of(ledger, "a"), killed, Measurement(runtime_s=3.0))
    release(ledger, "a")
    second = granted(ledger, "a")
    ledger.runs.begin(second.fence, container="c", runtime="process", ttl_s=60.0)
    ledger.runs.finish(
        fence_of(ledger, "a"), Exit(ExitKind.OK, 0, "done"), Measurement(runtime_s=5.0)
    )
    release(ledger, "a")
    one, two = ledger.attempts.of_run("a")
    assert (one.attempt, one.node, one.resource) == (1, NODE.name, Resource.CPUS)
    assert one.reason == "needs 4 CPUs"
    assert (one.exit, one.measurement) == (killed, Measurement(runtime_s=3.0))
    times = (one.claimed_at, one.started_at, one.ended_at)
    assert None not in times
    assert list(times) == sorted(times)
    assert (two.attempt, two.resource, two.reason) == (2, None, "")
    assert two.exit == Exit(ExitKind.OK, 0, "done")
    assert [lease.attempt for lease in ledger.leases.every_of_run("a")] == [1, 2]


def test_a_run_that_ends_in_the_line_keeps_what_it_waited_for(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    wait_in_term(ledger, "a", Resource.GPUS, "needs a GPU")
    ledger.runs.finish(
        fence_of(ledger, "a"), Exit(ExitKind.CANCELLED, None, "cancelled"), Measurement()
    )
    (only,) = ledger.attempts.of_run("a")
    assert (only.node, only.reason, only.claimed_at) == (None, "needs a GPU", None)


def failure(kind: Silent = Silent.GPU_UNUSED, measured: float = 0.0) -> SilentFailure:
    return SilentFailure(kind, "a", "GPU-a", measured, 0.02, f"measured {measured}")


def test_a_gpu_is_watched_alone_until_its_node_registers_anew(ledger: Ledger) -> None:
    gpus = tuple(
        Gpu(f"GPU-{n}", n, "H100", GIB, kept_by=MemoryMeans.DRIVER_LIMIT) for n in range(2)
    )
    node = Node("limits", "gpu", Capacity(1.0, GIB, gpus))
    ledger.nodes.register(node, boot_id="boot", worker_token="token")
    ledger.nodes.watch_alone("limits", "GPU-1", "it took none", tries_again=True)
    record = ledger.nodes.get("limits")
    assert record is not None
    first, second = record.node.capacity.gpus
    assert (first, second.kept_by, second.kept_why) == (gpus[0], MemoryMeans.WATCH, "it took none")
    assert second.tries_again
    ledger.nodes.watch_alone("nobody", "GPU-1", "it took none", tries_again=True)
    ledger.nodes.register(node, boot_id="boot", worker_token="token")
    record = ledger.nodes.get("limits")
    assert record is not None
    assert record.node.capacity.gpus == gpus


def test_a_warning_begins_once_goes_on_and_is_over(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    going_on, begun = ledger.warnings.keep(fence_of(ledger, "a"), [failure()])
    assert going_on == begun
    again, none = ledger.warnings.keep(fence_of(ledger, "a"), [failure(measured=0.01)])
    assert ([each.failure.measured for each in again], none) == ([0.01], [])
    assert again[0].began_at == begun[0].began_at
    both, new = ledger.warnings.keep(
        fence_of(ledger, "a"), [failure(), failure(Silent.OVER_GRANT, 5.0)]
    )
    assert ([each.failure.kind for each in both], len(new)) == (
        [Silent.GPU_UNUSED, Silent.OVER_GRANT], 1,
    )  # fmt: skip
    assert ledger.warnings.keep(fence_of(ledger, "a"), []) == ([], [])
    assert all(each.ended_at is not None for each in ledger.warnings.of_run("a"))
    assert ledger.warnings.going_on() == []
    _, anew = ledger.warnings.keep(fence_of(ledger, "a"), [failure()])
    assert len(anew) == 1
    assert anew[0].began_at >= begun[0].began_at


def test_who_looks_for_one_kind_ends_no_other(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    fence = fence_of(ledger, "a")
    ledger.warnings.keep(fence, [failure()])
    only = (Silent.OVER_GRANT,)
    _, begun = ledger.warnings.keep(fence, [failure(Silent.OVER_GRANT, 5.0)], kinds=only)
    assert [each.failure.kind for each in begun] == [Silent.OVER_GRANT]
    assert len(ledger.warnings.going_on()) == 2
    ledger.warnings.keep(fence, [], kinds=only)
    assert [each.failure.kind for each in ledger.warnings.going_on()] == [Silent.GPU_UNUSED]


def test_a_warning_ends_with_its_attempt_and_keeps_the_policys_mark(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    _, (warning,) = ledger.warnings.keep(fence_of(ledger, "a"), [failure()])
    ledger.warnings.mark_stopped(fence_of(ledger, "a"), warning)
    ledger.runs.finish(fence_of(ledger, "a"), Exit(ExitKind.FAILED, 143, "stopped"), Measurement())
    (kept,) = ledger.warnings.of_run("a", 1)
    assert kept.stopped_at is not None
    assert kept.ended_at is not None
    assert ledger.warnings.of_run("a", 2) == []


def test_the_newest_standing_of_a_run_is_kept(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    for done_frac in (0.25, 0.5):
        ledger.progress_snapshots.keep(
            fence_of(ledger, "a"), ProgressSnapshot("a", 1, long_ago, 10.0, done_frac, 30.0)
        )
    found = ledger.progress_snapshots.of(["a", "b"])
    assert list(found) == ["a"]
    assert (found["a"].done_frac, found["a"].low_s) == (0.5, None)
    assert abs((found["a"].at - ledger.now()).total_seconds()) < 5
    assert ledger.progress_snapshots.of([]) == {}


def test_only_a_run_that_waits_is_told_why(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    wait_in_term(ledger, "a", Resource.CPUS, "needs 4 CPUs")
    found = ledger.runs.get("a")
    assert (found.resource, found.reason) == (Resource.CPUS, "needs 4 CPUs")
    admit(ledger, "a")
    wait_in_term(ledger, "a", Resource.CPUS, "too late")
    assert ledger.runs.get("a").reason == ""


def test_predictions_and_steps_come_back(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    said, demand = Prediction(runtime_s=60.0, basis="prior"), Demand(GIB, gpus=2)
    ledger.runs.predict(fence_of(ledger, "a"), said, demand)
    assert ledger.runs.get("a").prediction == said
    assert ledger.runs.get("a").demand == demand
    ledger.steps.started(fence_of(ledger, "a"), "stage_data")
    ledger.steps.ended(fence_of(ledger, "a"), "stage_data", StepState.FAILED, "gone")
    ledger.steps.started(fence_of(ledger, "a"), "stage_data")
    (step,) = ledger.steps.of_run("a")
    assert (step.state, step.ended_at, step.message) == (StepState.RUNNING, None, "")


def test_points_are_numbered_and_kept_once(ledger: Ledger) -> None:
    granted(ledger, "a")
    points = [ProgressPoint(float(i), i, total=9, metrics={"loss": 1 / i}) for i in range(1, 6)]
    ledger.progress.append(fence_of(ledger, "a"), points[:3], first=0)
    ledger.progress.append(fence_of(ledger, "a"), points, first=0)
    assert ledger.progress.series("a", 1) == points
    assert ledger.progress.latest("a") == points[-1]
    ledger.runs.requeue(fence_of(ledger, "a"), Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    ledger.progress.append(fence_of(ledger, "a"), points[:1], first=0)
    assert ledger.progress.latest("a") == points[0]
    granted(ledger, "b")  # whose newest attempt is an earlier one than that of a
    ledger.progress.append(fence_of(ledger, "b"), points[:2], first=0)
    enqueue(ledger, "c")
    assert ledger.progress.latest_of(["a", "b", "c"]) == {"a": points[0], "b": points[1]}


def test_a_point_without_metrics_has_those_before_it(ledger: Ledger) -> None:
    """A bar moves between the lines that tell them, of training and of validation."""
    said: list[dict[str, float]] = [
        {"loss": 3.0}, {"loss": 1.0}, {"acc": 0.5}, {"loss": 2.0}, {}, {"acc.nan": 1.0}, {},
    ]  # fmt: skip
    for run_id, many in (("a", 7), ("b", 5)):
        granted(ledger, run_id)
        points = [ProgressPoint(float(i), i, metrics=said[i]) for i in range(many)]
        ledger.progress.append(fence_of(ledger, run_id), points, first=0)
    found = ledger.progress.latest_of(["a", "b"])
    assert (found["a"].iteration, found["a"].metrics) == (6, {"loss": 2.0, "acc.nan": 1.0})
    assert (found["b"].iteration, found["b"].metrics) == (4, {"loss": 2.0, "acc": 0.5})
    assert ledger.progress.metrics("b", 1) == {"loss": (2.0, 1.0, 3.0), "acc": (0.5, 0.5, 0.5)}
    assert str(ledger.progress.metrics("a", 1)["acc"].last) == "nan"


def test_points_are_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.ledger.series.MAX_POINTS", 10)
    enqueue(ledger, "a")
    points = [ProgressPoint(float(i), i) for i in range(1, 31)]
    for first in range(0, 30, 5):
        ledger.progress.append(fence_of(ledger, "a"), points[first : first + 5], first=first)
    kept = ledger.progress.series("a", 1)
    assert len(kept) == 10
    assert kept[-1] == points[-1]


def test_points_are_thinned_over_all_of_an_attempt(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    points = [ProgressPoint(float(i), i) for i in range(1, 24)]
    ledger.progress.append(fence_of(ledger, "a"), points, first=0)
    few = ledger.progress.thinned("a", 1, 5)
    assert [point.iteration for point in few] == [1, 6, 11, 16, 21, 23]
    assert ledger.progress.thinned("a", 1, 23) == points
    assert ledger.progress.thinned("a", 2, 5) == []


def test_a_trace_is_kept_once(ledger: Ledger) -> None:
    trace = Trace("resnet-50", "v100", 1, 32, runtime_s=60.0, run_id="a-1", metrics={"x": 1.0})
    assert ledger.traces.add([trace, trace]) == 1
    assert ledger.traces.add([trace]) == 0
    assert ledger.traces.all() == [trace]
    assert ledger.traces.all(source="elsewhere") == []
    assert ledger.traces.count() == 1


def test_a_team_knows_its_own_traces_and_those_of_nobody(ledger: Ledger) -> None:
    one = Trace("net", "v100", 1, 32, runtime_s=60.0, run_id="a-1", team="vision")
    other = replace(one, run_id="b-1", team="speech")
    imported = replace(one, run_id="c-1", team="", source="paper")
    ledger.traces.add([one, other, imported])
    assert ledger.traces.newest("net", 9, "vision") == [imported, one]
    assert ledger.traces.newest("net", 9, "new") == [imported]
    assert ledger.traces.newest("net", 1, "speech") == [imported]
    assert ledger.traces.newest("net", 9, None) == [imported, other, one]


def test_how_data_came_to_a_node_is_kept_once_for_each_attempt(ledger: Ledger) -> None:
    granted(ledger, "a")
    copied = Staging(1, "", "node-a", "/data/x", 10, 2.5, was_there=False)
    named = Staging(1, "more", "node-a", "/data/y", 7, 0.1, was_there=True)
    for staging in (named, copied, replace(copied, was_there=True)):  # a second process finds it
        ledger.staged.note(fence_of(ledger, "a"), staging)
    ledger.staged.record("node-a", "x", "/data/x", 10, "f" * 64)
    assert ledger.staged.of_run("a") == [copied, named]
    use = CacheUse(sets=1, size_bytes=10, hits=1, hit_bytes=7, copies=1, copied_bytes=10)
    assert ledger.staged.uses() == {"node-a": use}
    # Its claim was given back, and the same attempt began elsewhere.
    elsewhere = replace(copied, node="node-b", took_s=7.0)
    ledger.staged.note(fence_of(ledger, "a"), elsewhere)
    assert ledger.staged.of_run("a") == [elsewhere, named]
    stranger = replace(fence_of(ledger, "a"), token="another")
    with pytest.raises(LeaseLost):
        ledger.staged.note(stranger, replace(copied, name="late"))


def test_only_the_newest_worker_reports_for_a_node(ledger: Ledger) -> None:
    reading = NodeReading(NOON, HostReading(32 * GIB, GIB, 0.1, GIB))
    assert ledger.nodes.heartbeat("node-a", "worker", reading)
    ledger.nodes.register(NODE, boot_id="boot", worker_token="newer")
    assert not ledger.nodes.heartbeat("node-a", "worker", reading)
    (record,) = ledger.nodes.all()
    assert record.node == NODE
    assert record.worker_token == "newer"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET state = 'asleep'",
        "UPDATE run SET state = 'running', node = NULL",
        "UPDATE run SET state = 'ended'",
        "UPDATE run SET attempt = 0",
        "UPDATE run SET exit_kind = 'odd'",
        "UPDATE lease SET host_memory_bytes = -5",
        "UPDATE lease SET cpus = 0",
        "UPDATE lease_port SET port = 80",
        "UPDATE lease_gpu SET memory_bytes = -1",
        "UPDATE node SET reserve_host_memory_bytes = host_memory_bytes + 1",
        "UPDATE node SET cpus = 0",
        "UPDATE run SET gang_rank = 1",
        "UPDATE node SET state = 'gone'",
        SECOND_LEASE,
        "INSERT INTO lease_port (lease_id, port, node) VALUES (999, 9000, 'node-a')",
    ],
)
def test_the_database_refuses_what_must_never_be(ledger: Ledger, statement: str) -> None:
    granted(ledger, "a", Demand(GIB, gpus=1, gpu_memory_bytes=GIB, ports=(6006,)))
    with (
        pytest.raises(LedgerError, match="breaks one of its rules"),
        ledger._database.transaction() as session,
    ):
        session.execute(text(statement))


def test_a_naive_time_is_refused(ledger: Ledger) -> None:
    with pytest.raises(StatementError, match="naive"):
        enqueue(ledger, "a", submitted_at=datetime(2026, 1, 1))  # noqa: DTZ001 - the point


def test_times_are_the_databases(ledger: Ledger) -> None:
    first = ledger.now()
    assert first.tzinfo is UTC
    assert abs((datetime.now(UTC) - first).total_seconds()) < 5
    assert ledger.now() >= first


def test_the_schema_version_is_alembics_head() -> None:
    config = Config()
    migrations = Path(database.__file__).parent / "migrations"
    config.set_main_option("script_location", str(migrations))
    assert ScriptDirectory.from_config(config).get_current_head() == database.SCHEMA_VERSION


def test_the_tables_are_what_the_migrations_make(ledger: Ledger) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlmodel import SQLModel

    with ledger._database.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), SQLModel.metadata)
    assert differences == []


def _open(url: str) -> None:
    Ledger.open(url).close()


def test_several_may_migrate_at_once(empty_database_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    starters = [context.Process(target=_open, args=(empty_database_url,)) for _ in range(3)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(60)
    assert [starter.exitcode for starter in starters] == [0, 0, 0]
    ledger = Ledger.open(empty_database_url)
    assert ledger.nodes.all() == []
    ledger.close()


def test_a_ledger_that_is_not_there_is_not_made_by_asking(empty_database_url: str) -> None:
    with pytest.raises(LedgerMissing, match=r"there is no ledger at .*`headway up`"):
        Ledger.find(empty_database_url)
    Ledger.open(empty_database_url).close()
    found = Ledger.find(empty_database_url)
    assert found.nodes.all() == []
    found.close()


def test_a_refused_connection_is_ours_to_tell() -> None:
    with pytest.raises(LedgerUnreachable, match="cannot be used") as caught:
        Ledger.open("postgresql://nobody:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


def test_a_claim_has_a_deadline_until_a_flow_takes_it_up(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    enqueue(ledger, "b")
    late = admit_in_term(ledger, "a", "node-a", Demand(GIB), start_limit_s=-1.0)
    early = admit_in_term(ledger, "b", "node-a", Demand(GIB), start_limit_s=600.0)
    by_itself = granted(ledger, "c")
    assert isinstance(late, Lease)
    assert isinstance(early, Lease)
    assert early.start_by is not None
    assert by_itself.start_by is None
    assert ledger.leases.unstarted("node-a") == [late, early]
    assert ledger.leases.unstarted("node-b") == []
    assert ledger.leases.overdue("node-a") == [late]
    ledger.leases.take_up(late.fence)
    ledger.leases.take_up(late.fence)
    assert ledger.leases.overdue("node-a") == []
    assert ledger.leases.unstarted("node-a") == [early]
    with pytest.raises(LeaseLost):
        ledger.leases.take_up(replace(early.fence, token="of a claim before"))
    ledger.leases.give_back(fence_of(ledger, "b"))
    with pytest.raises(LeaseLost, match="released"):
        ledger.leases.take_up(early.fence)


# --- gangs ---


def gang(ledger: Ledger, run_id: str, demand: Demand | None = None, **more: Any) -> Lease | Wait:
    """Ask for node-a and node-b at once."""
    if ledger.nodes.get("node-b") is None:
        second = replace(NODE, name="node-b")
        ledger.nodes.register(second, boot_id="b", worker_token="w")
    enqueue(ledger, run_id)
    return admit_in_term(ledger,
        run_id, "node-a", demand or Demand(8 * GIB), others=["node-b"],
        **more,
    )  # fmt: skip


def test_a_gang_gets_all_its_leases_and_a_port_to_meet(ledger: Ledger) -> None:
    lease = gang(ledger, "a", Demand(8 * GIB, ports=(6006,)))
    assert isinstance(lease, Lease)
    assert lease.ports == {6006: 6006, FREE_PORTS.first: FREE_PORTS.first}
    (other,) = ledger.leases.untaken("a")
    assert (other.node, other.gang_rank, other.ports) == ("node-b", 1, lease.ports)
    assert ledger.runs.get("a").node == "node-a"
    assert [lease.node for lease in ledger.leases.live()] == ["node-a", "node-b"]


def test_a_session_gets_a_free_port_unless_it_names_one(ledger: Ledger) -> None:
    ports, demands = [], [(), (8080,), ()]
    for at, session in enumerate(({}, {"port": 8080}, {"shell": True})):
        enqueue(ledger, f"run-{at}", {"session": session})
        lease = grant_in_term(ledger, f"run-{at}", "node-a", Demand(GIB, ports=demands[at]))
        ports.append(tuple(lease.ports.values()))
    assert ports == [(FREE_PORTS.first,), (8080,), ()]
    enqueue(ledger, "waits", {"session": {"port": 8080}})
    answer = admit_in_term(ledger, "waits", "node-a", Demand(GIB, ports=(8080,)))
    assert isinstance(answer, Wait)
    assert "8080" in answer.reason


def test_an_engine_gives_runs_of_one_port_another_of_the_node_each(ledger: Ledger) -> None:
    free = NodePorts(PortUse.PUBLISHED, NumberRange(30_000, 30_004))
    ledger.nodes.register(replace(NODE, ports=free), boot_id="boot", worker_token="w")
    host = HostReading(64 * GIB, 4 * GIB, 0.25, 100 * GIB)
    seen = NodeReading(ledger.now(), host, busy_ports=(30_001,))

    def asks(run: str, *ports: int, **ranges: NumberRange) -> Lease | Wait:
        enqueue(ledger, run, {"session": {}} if ANY_PORT in ports else None)
        demand = Demand(GIB, ports=ports)
        return admit_in_term(ledger, run, "node-a", demand, reading=seen, port_ranges=ranges)

    others = NumberRange(30_003, 30_003)
    first = asks("a", 12_345, ANY_PORT, others=others)
    assert isinstance(first, Lease)
    assert first.ports == {12_345: 30_000, 30_002: 30_002}
    assert ledger.leases.of_run("a") == first
    wait = asks("b", 12_345, ANY_PORT, others=others)  # one is left of what it needs two of
    assert isinstance(wait, Wait)
    assert wait.resource is Resource.PORTS
    lease = asks("c", 12_345, t=NumberRange(40_000, 40_001))
    assert isinstance(lease, Lease)
    assert lease.ports == {12_345: 40_000}


def test_a_gang_of_a_team_with_ports_meets_on_one_of_them(ledger: Ledger) -> None:
    ports = {"t": NumberRange(30_000, 30_001)}
    first = gang(ledger, "a", Demand(GIB, ports=(30_000,)), port_ranges=ports)
    assert isinstance(first, Lease)
    assert first.ports == {30_000: 30_000, 30_001: 30_001}
    second = gang(ledger, "b", Demand(GIB), port_ranges=ports)
    assert isinstance(second, Wait)
    assert "all ports 30000-30001 of node node-a are taken" in second.reason


def test_a_gang_gets_none_of_its_leases_when_one_does_not_fit(ledger: Ledger) -> None:
    gang(ledger, "probe")
    release(ledger, "probe")
    enqueue(ledger, "there")
    admit_in_term(ledger, "there", "node-b", Demand(25 * GIB))
    answer = gang(ledger, "a", Demand(20 * GIB))
    assert isinstance(answer, Wait)
    assert "node-b" in answer.reason
    assert ledger.leases.live("node-a") == []
    assert ledger.runs.get("a").state is RunState.WAITING


def untaken(ledger: Ledger, run_id: str) -> int:
    (held,) = ledger.leases.untaken(run_id)
    return held.lease_id


def test_a_rank_takes_its_lease_once_and_is_a_run_of_its_own(ledger: Ledger) -> None:
    gang(ledger, "a")
    held = untaken(ledger, "a")
    taken = ledger.leases.take(held, "a", 1, "rank-one")
    assert (taken.run_id, taken.node, taken.gang_rank) == ("rank-one", "node-b", 0)
    assert ledger.leases.take(held, "a", 1, "rank-one") == taken
    with pytest.raises(LeaseLost):
        ledger.leases.take(held, "a", 1, "somebody else")
    (rank,) = ledger.runs.ranks("a", 1)
    assert (rank.state, rank.gang_id, rank.gang_rank) == (RunState.CLAIMED, "a", 1)
    assert (rank.name, rank.job["retries"]) == ("a-rank1", 0)
    assert ledger.leases.untaken("a") == []
    assert ledger.leases.expiries(["a", "rank-one", "nobody"]).keys() == {"a", "rank-one"}
    assert not ledger.leases.give_back(taken.fence)  # it never waits in the line
    # The gang's end leaves the rank its lease: its container may live.
    release(ledger, "a")
    assert ledger.leases.of_run("rank-one") == taken
    assert ledger.leases.expiries(["a", "rank-one"]) == {"rank-one": taken.expires_at}


def test_a_rank_is_given_what_a_killed_attempt_needs(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    granted(ledger, "a")
    killed = Exit(ExitKind.OUT_OF_MEMORY, 137, "killed")
    ledger.runs.requeue(
        fence_of(ledger, "a"), killed, demand_override={"host_memory_bytes": 9 * GIB}
    )
    release(ledger, "a")
    assert isinstance(gang(ledger, "a", Demand(9 * GIB)), Lease)
    ledger.leases.take(untaken(ledger, "a"), "a", 2, "rank-one")
    assert ledger.runs.get("rank-one").demand_override == {"host_memory_bytes": 9 * GIB}


def test_a_rank_called_for_an_earlier_grant_of_the_attempt_takes_nothing(ledger: Ledger) -> None:
    lease = gang(ledger, "a")
    assert isinstance(lease, Lease)
    before = untaken(ledger, "a")
    assert ledger.leases.give_back(fence_of(ledger, "a"))
    assert ledger.leases.live() == []
    lease = gang(ledger, "a")
    assert isinstance(lease, Lease)
    assert lease.attempt == 1
    with pytest.raises(LeaseLost):
        ledger.leases.take(before, "a", 1, "late")
    with pytest.raises(LeaseLost):
        ledger.leases.take(lease.lease_id, "a", 1, "not a rank's")
    assert ledger.leases.take(untaken(ledger, "a"), "a", 1, "rank-one").node == "node-b"


def test_a_gang_that_gives_back_leaves_its_ranks_to_the_attempt_before(ledger: Ledger) -> None:
    lease = gang(ledger, "a")
    assert isinstance(lease, Lease)
    ledger.leases.take(untaken(ledger, "a"), "a", 1, "rank-one")
    assert ledger.leases.give_back(fence_of(ledger, "a"))
    assert ledger.runs.get("a").attempt == 2
    (first,) = ledger.attempts.of_run("a")
    assert first.exit is not None
    assert first.exit.kind is ExitKind.INFRASTRUCTURE
    release(ledger, "rank-one")
    assert isinstance(gang(ledger, "a"), Lease)
    assert ledger.leases.take(untaken(ledger, "a"), "a", 2, "rank-one-again").attempt == 2


def _backend(ledger: Ledger, told: Connection) -> None:
    with ledger._database.engine.connect() as own:
        told.send(own.scalar(text("SELECT pg_backend_pid()")))


def test_a_process_that_was_forked_has_connections_of_its_own(ledger: Ledger) -> None:
    """On its parent's it would read the answers to that one's questions."""
    ledger.now()
    forking, (here, there) = multiprocessing.get_context("fork"), multiprocessing.Pipe()
    child = forking.Process(target=_backend, args=(ledger, there))
    child.start()
    other = here.recv()
    child.join()
    with ledger._database.engine.connect() as own:
        assert own.scalar(text("SELECT pg_backend_pid()")) != other


# --- tags and promises ---


def turns(ledger: Ledger) -> tuple[Mapping[str, Turn], VirtualClock | None]:
    seen = ledger.pools.snapshot("gpu", {})
    return seen.turns, seen.clock


def test_a_demand_that_changes_within_an_attempt_is_a_change(ledger: Ledger) -> None:
    """Who had read the run before would plan with what it asked for then."""
    enqueue(ledger, "a")
    ledger.runs.predict(Fence("a", 1), Prediction(), Demand(8 * GIB))
    known = ledger.pools.snapshot("gpu", {}).waiting
    assert ledger.pools.snapshot("gpu", known).changed == ()
    ledger.runs.predict(Fence("a", 1), Prediction(), Demand(4 * GIB))
    (changed,) = ledger.pools.snapshot("gpu", known).changed
    assert changed.demand == Demand(4 * GIB)


def test_a_snapshot_after_another_tells_what_has_changed_since(ledger: Ledger) -> None:
    for run_id in "abc":
        enqueue(ledger, run_id)
    first = ledger.pools.snapshot("gpu", {})
    assert first.waiting.keys() == set("abc")
    wait_in_term(ledger, "a", Resource.CPUS, "no place")
    nothing = ledger.pools.snapshot("gpu", first.waiting, first.until)
    assert (nothing.waiting, nothing.gone, nothing.changed) == ({}, frozenset(), ())
    ledger.turns.keep(term_in(ledger), VirtualClock(NOON), {"a": Turn(1.0)})
    granted(ledger, "b", Demand(GIB))
    enqueue(ledger, "d")
    later = ledger.pools.snapshot("gpu", first.waiting, nothing.until)
    assert (later.waiting.keys(), later.gone) == ({"a", "d"}, {"b"})
    assert (later.turns, [run.run_id for run in later.changed]) == ({"a": Turn(1.0)}, ["d"])


def test_what_was_not_yet_committed_at_one_snapshot_is_told_by_the_next(ledger: Ledger) -> None:
    """Though a transaction that began after it was committed before."""
    enqueue(ledger, "slow")
    slow = text("UPDATE run SET attempt = 2 WHERE run_id = 'slow'")
    with ledger._database.engine.connect() as other:
        other.execute(slow)
        enqueue(ledger, "quick")
        seen = ledger.pools.snapshot("gpu", {})
        other.commit()
    (told,) = ledger.pools.snapshot("gpu", seen.waiting, seen.until).changed
    assert (told.run_id, told.attempt) == ("slow", 2)


def test_a_tag_and_a_promise_are_given_once(ledger: Ledger) -> None:
    enqueue(ledger, "a")
    enqueue(ledger, "b")
    assert turns(ledger) == ({}, None)
    first = VirtualClock(NOON, {"red": 1.5})
    ledger.turns.keep(term_in(ledger), first, {"a": Turn(3.25), "b": Turn(4.0, NOON)})
    assert turns(ledger) == ({"a": Turn(3.25), "b": Turn(4.0, NOON)}, first)
    # What was left open is added; what is there stays, whoever says something else.
    later = VirtualClock(NOON + timedelta(hours=1), {"red": 2.5})
    another = {"a": Turn(9.0, NOON), "b": Turn(9.0, NOON + timedelta(hours=9))}
    ledger.turns.keep(term_in(ledger), later, another)
    assert turns(ledger) == ({"a": Turn(3.25, NOON), "b": Turn(4.0, NOON)}, later)
    assert ledger.pools.snapshot("another", {}).clock is None


def test_another_attempt_keeps_them_and_a_retry_begins_anew(ledger: Ledger) -> None:
    granted(ledger, "a", Demand(GIB))
    turn = Turn(3.25, NOON)
    ledger.turns.keep(term_in(ledger), VirtualClock(NOON), {"a": turn})
    (holder,) = ledger.pools.snapshot("gpu", {}).holders
    assert (holder.tag, holder.promised_at) == (3.25, NOON)
    preempted = Exit(ExitKind.PREEMPTED, None, "for another")
    ledger.runs.requeue(fence_of(ledger, "a"), preempted)
    assert turns(ledger)[0] == {"a": turn}
    release(ledger, "a")
    cancelled = Exit(ExitKind.CANCELLED, None, "cancelled")
    ledger.runs.finish(ledger.runs.get("a").unleased, cancelled, Measurement())
    assert ledger.runs.retry("a", 2)
    assert turns(ledger)[0] == {}


def test_a_clock_that_cannot_be_read_stops_nobody(ledger: Ledger) -> None:
    ledger.settings.put("virtual_clock/gpu", {"at": "yesterday"})
    enqueue(ledger, "a")
    assert turns(ledger) == ({}, None)
    ledger.turns.keep(term_in(ledger), VirtualClock(NOON), {"a": Turn(1.0)})
    assert turns(ledger) == ({"a": Turn(1.0)}, VirtualClock(NOON))


# --- what a node's guard renews, and when its places are given away ---


def renew(ledger: Ledger, *runs: str, node: str = "node-a", **terms: Any) -> RenewalAnswer:
    values: dict[str, Any] = {"identity": "id", "flows": (), "ttl_s": 600.0, "expire": True}
    containers = {(run_id, 1) for run_id in runs}
    return ledger.renewals.renew(node, containers=containers, **(values | terms))


def test_a_guard_renews_what_is_alive_on_its_node_and_is_told_what_is_stale(
    ledger: Ledger,
) -> None:
    lease = granted(ledger, "a", Demand(GIB))
    by_flow = granted(ledger, "b", Demand(GIB))
    dead = granted(ledger, "c", Demand(GIB))
    answer = renew(ledger, "a", "of an old ledger", flows=["b"])
    assert answer.renewed == {("a", 1): {"name": "x"}, ("b", 1): {"name": "x"}}
    assert not answer.others
    renewed = {each.run_id: each.expires_at for each in ledger.leases.live("node-a")}
    assert renewed["a"] == renewed["b"] > max(lease.expires_at, by_flow.expires_at)
    assert renewed["c"] == dead.expires_at
    assert renew(ledger, "a", node="node-b").renewed == {}
    release(ledger, "a")
    assert renew(ledger, "a").renewed == {}


def test_a_guard_does_not_renew_what_a_later_attempt_holds(ledger: Ledger) -> None:
    granted(ledger, "a")
    ledger.runs.requeue(
        fence_of(ledger, "a"), Exit(ExitKind.INFRASTRUCTURE, None, "its node was removed")
    )
    assert renew(ledger, "a").renewed  # its lease stays until the container is gone
    release(ledger, "a")
    assert isinstance(admit(ledger, "a"), Lease)
    assert renew(ledger, "a").renewed == {}


def test_a_guard_renews_what_ranks_of_its_gang_have_not_taken(ledger: Ledger) -> None:
    lease = gang(ledger, "a")
    assert isinstance(lease, Lease)
    assert renew(ledger, "a").others
    (other,) = ledger.leases.untaken("a")
    assert other.expires_at > lease.expires_at
    assert ledger.leases.release_untaken("gpu", ttl_s=-61.0) == []
    assert renew(ledger, "a", node="node-b").renewed == {}  # it runs nowhere there
    ledger.leases.give_back(fence_of(ledger, "a"))
    assert isinstance(gang(ledger, "a"), Lease)
    assert ledger.leases.release_untaken("other", ttl_s=-61.0) == []
    assert ledger.leases.release_untaken("gpu", ttl_s=-61.0) == ["a"]
    assert ledger.leases.live("node-b") == []


def test_a_node_is_given_away_only_a_margin_after_its_leases_expired(ledger: Ledger) -> None:
    granted(ledger, "a")
    renew(ledger, "a", ttl_s=100.0)
    assert 140.0 < ledger.nodes.held_s("node-a", 50.0) <= 150.0
    assert not ledger.nodes.remove("node-a", margin_s=50.0)
    assert ledger.leases.of_run("a") is not None
    renew(ledger, "a", ttl_s=-60.0)
    assert ledger.nodes.held_s("node-a", 50.0) <= 0.0
    assert ledger.nodes.remove("node-a", margin_s=50.0)
    assert ledger.leases.of_run("a") is None
    assert renew(ledger, "a").renewed == {}


def test_the_only_node_of_a_site_may_go_on_without_renewing(ledger: Ledger) -> None:
    lease = granted(ledger, "a")
    renew(ledger, "a", expire=False)
    assert ledger.nodes.held_s("node-a", 50.0) == math.inf
    kept = ledger.leases.resize(
        lease.fence, Demand(GIB), reading=None, ttl_s=60.0
    )  # which moves no expiry to an earlier time
    assert isinstance(kept, Lease)
    assert ledger.nodes.held_s("node-a", 50.0) == math.inf
    assert not ledger.nodes.remove("node-a", margin_s=50.0)
    assert ledger.nodes.remove("node-a")  # the operator knows that its machine is off
    assert ledger.leases.of_run("a") is None


def test_a_name_is_its_nodes_while_it_reports_or_holds_leases(ledger: Ledger) -> None:
    def register(identity: str, boot: str = "boot") -> None:
        ledger.nodes.register(NODE, boot_id=boot, worker_token="w", identity=identity)

    register("first")  # of version 0.1, which had no ids, on this very boot
    register("first", boot="started anew")
    with pytest.raises(NodeNameTaken, match="headway node remove node-a"):
        register("second")
    granted(ledger, "a")
    age(ledger, "node-a")
    with pytest.raises(NodeNameTaken, match=r"1 lease\(s\)"):
        register("second")
    release(ledger, "a")
    register("second")
    found = ledger.nodes.get("node-a")
    assert found is not None
    assert found.identity == "second"
    assert renew(ledger, "a", identity="first").renewed == {}


def test_a_node_of_version_01_on_another_machine_keeps_its_name_while_it_reports(
    ledger: Ledger,
) -> None:
    with pytest.raises(NodeNameTaken):
        ledger.nodes.register(NODE, boot_id="another", worker_token="w", identity="new")
    age(ledger, "node-a")
    ledger.nodes.register(NODE, boot_id="another", worker_token="w", identity="new")


def age(ledger: Ledger, node: str) -> None:
    """Let the node's worker be silent since an hour ago."""
    with ledger._database.transaction() as session:
        row = session.get_one(NodeRow, node)
        row.heartbeat_at -= timedelta(hours=1)


# --- starts that were said ---


def said_start(run_id: str, said_at: datetime) -> StartForecast:
    ends = [said_at + timedelta(minutes=each) for each in (5, 10, 20)]
    return StartForecast(
        run_id, said_at, 600.0, 300.0, 900.0, *ends, gpus=1, ahead=2, at_submission=True
    )


def test_what_was_said_of_a_start_meets_the_start_that_came(ledger: Ledger) -> None:
    enqueue(ledger, "a", submitted_at=NOON)
    enqueue(ledger, "b", submitted_at=NOON)
    first, later = said_start("a", NOON), said_start("a", NOON + timedelta(hours=1))
    ledger.starts.keep([first, later, said_start("b", NOON)])
    ledger.starts.settle()
    waiting = [later, first, said_start("b", NOON)]
    assert ledger.starts.newest(10) == waiting
    assert ledger.starts.of_waiting(["a", "c"]) == {"a": [first, later]}
    admit(ledger, "a")
    ledger.starts.settle()
    started_at = ledger.runs.get("a").claimed_at
    told = [replace(each, started_at=started_at) for each in (later, first)]
    assert ledger.starts.newest(10) == [*told, said_start("b", NOON)]
    assert ledger.starts.newest(1) == told[:1]
    assert ledger.starts.of_waiting(["a", "b"]) == {"b": [said_start("b", NOON)]}
    # Back in the queue it was never started later than this.
    ledger.leases.give_back(fence_of(ledger, "a"))
    ledger.starts.settle()
    assert ledger.starts.newest(10) == [*told, said_start("b", NOON)]
    # Who was cancelled never starts: it teaches nothing.
    ledger.runs.finish(Fence("b", 1), Exit(ExitKind.CANCELLED, None, "no"), Measurement())
    assert ledger.starts.newest(10) == told
