"""Runs that leave their size open, on a real ledger: what they start with, and go on with."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.forecast import Forecaster
from headway.gateway.estimate import estimate_options
from headway.ledger import Ledger
from headway.model.attempt_record import ProgressSnapshot
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources, Training
from headway.model.lease import Demand, Lease, Wait
from headway.model.node import GpuReading, NodeState
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.model.size import Size
from headway.model.trace import Trace
from headway.node.grants import NodeGrants
from headway.policy.settings import LINE
from headway.run.followed import Followed
from headway.run.here import CHECKPOINT_FOLDER, checkpoint_age_s
from headway.run.spec import container_spec
from headway.runtime.port import ContainerState, ContainerStatus
from headway.scheduler import grants
from headway.scheduler.intake import Offer
from headway.scheduler.queue import PoolQueue
from headway.settings import Settings
from headway.site import Site
from headway.this_node import adopt, heartbeat, join_site, read_node
from headway.units import GIB
from headway.views.run_document import size_words
from headway.views.run_history import history_of
from headway.views.run_markdown import markdown
from tests.ports.telemetry import FakeGpus
from tests.support.fence import fence_of, release
from tests.support.leading import admit_in_term, admitted, leading
from tests.support.postgresql import with_ledger
from tests.support.queued import begun, enqueue

GPU = "NVIDIA A100-SXM4-80GB"
RUN = "00000000-0000-4000-8000-000000000001"
JOB = TrainingJob(
    name="elastic",
    image="image:1",
    command=["torchrun", "train.py"],
    resources=Resources(host_memory="64MiB", cpus=0.1, nodes="2-3", gpus="1-2", sharing="whole"),
    preemptible=True,
)
LOST = Exit(ExitKind.INFRASTRUCTURE, None, "rank 2 on two is lost")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three nodes with two GPUs each."""
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="head"), SystemClock())
    site.gpus = FakeGpus(*(GpuReading(f"GPU-{at}", at, GPU, 80 * GIB, 0) for at in range(2)))
    join_site(site)
    heartbeat(site, read_node(site))
    (head,) = (each.node for each in site.ledger.nodes.all())
    for name in ("one", "two"):
        gpus = tuple(replace(gpu, uuid=f"{name}-{gpu.index}") for gpu in head.capacity.gpus)
        node = replace(head, name=name, capacity=replace(head.capacity, gpus=gpus))
        site.ledger.nodes.register(node, boot_id="b", worker_token="w")
    yield site
    site.ledger.close()


def ran(ledger: Ledger, nodes: int, gpus: int, runtime_s: float) -> None:
    """A run of this recipe took so long on *gpus* GPUs of each of *nodes*."""
    ledger.traces.add([
        Trace(JOB.recipe(), GPU, nodes * gpus, None, nodes=nodes, runtime_s=runtime_s, cpus=0.1,
              recipe=JOB.recipe(), run_id=f"{nodes}-{gpus}")
    ])  # fmt: skip


def known(ledger: Ledger) -> None:
    """More GPUs make it faster, and pay."""
    for nodes in (2, 3):
        for gpus in (1, 2):
            ran(ledger, nodes, gpus, 3600.0 / (nodes * gpus))


def offer(site: Site, job: TrainingJob = JOB) -> PoolQueue:
    line = leading(site)
    line.take_in([Offer(RUN, job.name, job.document(), site.ledger.now())])
    return line


def held(site: Site) -> dict[str, int]:
    """GPUs that it holds of each node."""
    return {each.node: len(each.gpus) for each in site.ledger.leases.live()}


def lose(site: Site, node: str) -> None:
    """Its attempt ends since *node* is gone; it waits for its next one."""
    site.ledger.nodes.set_state(node, NodeState.DRAINING, "gone")
    site.ledger.runs.requeue(fence_of(site.ledger, RUN), LOST)
    release(site.ledger, RUN)


def test_it_starts_with_what_there_is_and_goes_on_with_what_is_left(site: Site) -> None:
    known(site.ledger)
    line = offer(site)
    record = site.ledger.runs.get(RUN)
    assert (record.nodes, record.size) == (2, Size(2, 1)), "it waits for the least"
    assert line.run_pass().granted == (RUN,)
    assert held(site) == {"head": 2, "one": 2, "two": 2}
    first = begun(site, RUN, JOB)
    assert (first.job.nodes, first.job.gpus) == (3, 2)
    lease = admitted(first)
    meeting = first.meet(lease)
    assert meeting is not None
    assert meeting.nodes == 3
    told = container_spec(first, lease).env
    assert {name: told[name] for name in ("PET_NNODES", "PET_NPROC_PER_NODE", "HEADWAY_NODES")} == {
        "PET_NNODES": "3", "PET_NPROC_PER_NODE": "2", "HEADWAY_NODES": "3",
    }  # fmt: skip
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    assert size_words(site.ledger.runs.get(RUN).demand) == "3 nodes with 2 GPUs each"

    lose(site, "two")
    record = site.ledger.runs.get(RUN)
    assert (record.state, record.attempt, record.size) == (RunState.WAITING, 2, Size(2, 1))
    assert line.run_pass().granted == (RUN,)
    assert held(site) == {"head": 2, "one": 2}
    assert site.ledger.runs.get(RUN).node == "head", "where its checkpoint is"
    second = begun(site, RUN, JOB)
    assert (second.number, second.job.nodes, second.job.gpus) == (2, 2, 2)
    report = markdown(history_of(site, site.ledger.runs.get(RUN)))
    assert "3 nodes with 2 GPUs each" in report
    assert "2 nodes with 2 GPUs each" in report


def test_of_what_nothing_is_known_it_starts_with_the_least(site: Site) -> None:
    line = offer(site)
    assert line.run_pass().granted == (RUN,)
    assert len(held(site)) == 2
    assert set(held(site).values()) == {1}


def test_what_was_measured_at_one_size_tells_of_the_others(site: Site) -> None:
    ran(site.ledger, 2, 1, 3600.0)
    said, demand = Forecaster(site).forecast(JOB)
    assert (demand.nodes, demand.gpus, said.runtime_s) == (2, 1, pytest.approx(3600))
    sizes = [(each.demand.nodes, each.demand.gpus) for each in said.sizes]
    assert sizes == [(2, 1), (3, 1), (2, 2), (3, 2)]
    times = [each.said.runtime_s or 0.0 for each in said.sizes]
    assert times == sorted(times, reverse=True)


def test_no_size_is_tried_that_no_nodes_could_hold(site: Site) -> None:
    known(site.ledger)
    more = JOB.resources.model_copy(update={"nodes": Resources(nodes="2-8").nodes})
    said, _ = Forecaster(site).forecast(JOB.model_copy(update={"resources": more}))
    assert {each.demand.nodes for each in said.sizes} == {2, 3}


def test_a_quota_limits_the_size(site: Site) -> None:
    known(site.ledger)
    adopt(site, LINE, {"teams": {"default": {"max_gpus": 4}}})
    assert offer(site).run_pass().granted == (RUN,)
    assert sum(held(site).values()) == 4


def test_who_comes_between_decision_and_claim_leaves_it_nothing_of_that_size(site: Site) -> None:
    known(site.ledger)
    line = offer(site)
    other = "00000000-0000-4000-8000-000000000002"
    enqueue(site, other, JOB)
    whole = Demand(GIB, gpus=2, gpu_memory_bytes=GIB)
    admit = site.ledger.leases.admit

    def late(run_id: str, *given: object, **more: object) -> Lease | Wait:
        site.ledger.leases.admit = admit  # type: ignore[method-assign]
        assert isinstance(admit_in_term(site.ledger, other, "two", whole), Lease)
        return admit(run_id, *given, **more)  # type: ignore[arg-type]

    site.ledger.leases.admit = late  # type: ignore[assignment,method-assign]
    assert line.run_pass().granted == ()
    assert held(site) == {"two": 2}, "all of its leases or none"
    assert site.ledger.runs.get(RUN).size == Size(2, 1)
    assert line.run_pass().granted == (RUN,)
    assert held(site) == {"two": 2, "head": 2, "one": 2}


def test_no_part_goes_to_a_node_that_may_be_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait there in vain for minutes, and count as another failure."""
    line = offer(site)
    with monkeypatch.context() as patch:
        patch.setattr(grants, "SILENT_S", -1.0)
        assert line.run_pass().granted == ()
    assert line.run_pass().granted == (RUN,)


def test_a_claim_that_is_given_back_waits_for_the_least_again(site: Site) -> None:
    known(site.ledger)
    line = offer(site)
    assert line.run_pass().granted == (RUN,)
    assert site.ledger.runs.get(RUN).size == Size(3, 2)
    NodeGrants(site).give_back(RUN)
    record = site.ledger.runs.get(RUN)
    assert (record.state, record.attempt, record.size) == (RunState.WAITING, 1, Size(2, 1))


def test_a_run_of_before_has_the_size_of_its_job(site: Site) -> None:
    """Its demand says nothing of nodes."""
    fixed = JOB.of_size(Size(2, 1))
    enqueue(site, RUN, fixed)
    record = site.ledger.runs.get(RUN)
    site.ledger.runs.predict(record.unleased, *Forecaster(site).forecast(fixed))
    record = site.ledger.runs.get(RUN)
    assert (record.nodes, record.size) == (2, None)
    assert leading(site).run_pass().granted == (RUN,)
    assert held(site) == {"head": 1, "one": 1}


def running_on_two(site: Site, line: PoolQueue) -> Path:
    """It runs on two nodes, since the third was away; its newest checkpoint is new."""
    site.ledger.nodes.set_state("two", NodeState.DRAINING, "new fan")
    assert line.run_pass().granted == (RUN,)
    attempt = begun(site, RUN, JOB)
    lease = admitted(attempt)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    return attempt.made(CHECKPOINT_FOLDER) / "epoch-1.pt"


def says(site: Site, left_s: float) -> None:
    """Its log tells how long it still takes."""
    now = site.ledger.now()
    said = ProgressSnapshot(RUN, 1, now, 60.0, done_frac=0.1, remaining_s=left_s)
    site.ledger.progress_snapshots.keep(fence_of(site.ledger, RUN), said)


def stopped(site: Site, line: PoolQueue) -> list[str]:
    """What stops here by a pass that follows a report of the node."""
    age_s = checkpoint_age_s(site, RUN)
    ages = {} if age_s is None else {RUN: age_s}
    heartbeat(site, replace(read_node(site), checkpoint_age_s=ages))
    line.run_pass()
    return NodeGrants(site).to_stop()


def test_it_grows_at_a_checkpoint_into_room_that_nobody_waits_for(site: Site) -> None:
    known(site.ledger)
    line = offer(site)
    checkpoint = running_on_two(site, line)
    says(site, 3600.0)
    site.ledger.nodes.set_state("two", NodeState.READY, "")
    assert stopped(site, line) == [], "it has written no checkpoint"
    checkpoint.write_text("weights")
    os.utime(checkpoint, (1.0, 1.0))
    assert stopped(site, line) == [], "it wrote none in this attempt"
    os.utime(checkpoint)
    says(site, 5.0)
    assert stopped(site, line) == [], "it is nearly done"
    says(site, 3600.0)
    other = TrainingJob(
        name="large", image="i", command=["x"], resources=Resources(gpus=2, nodes=2, cpus=0.1)
    )
    waits = "00000000-0000-4000-8000-000000000003"
    line.take_in([Offer(waits, "large", other.document(), site.ledger.now())])
    assert stopped(site, line) == [], "somebody waits for room"
    site.ledger.runs.finish(
        fence_of(site.ledger, waits), Exit(ExitKind.CANCELLED, None, "over"), Measurement()
    )
    assert stopped(site, line) == [RUN]
    assert stopped(site, line) == [RUN], "until it is gone"

    attempt = begun(site, RUN, JOB)
    at = site.ledger.now()
    status = ContainerStatus("c", RUN, 1, ContainerState.EXITED, 0, started_at=at, ended_at=at)
    exit_, _ = attempt.settle(Followed(status, False, 60.0, "", None))
    assert exit_.kind is ExitKind.PREEMPTED
    assert "go on from it at a larger size" in exit_.message
    release(site.ledger, RUN)
    assert line.run_pass().granted == (RUN,)
    assert held(site) == {"head": 2, "one": 2, "two": 2}
    record = site.ledger.runs.get(RUN)
    assert (record.attempt, record.preemptions, record.node) == (2, 1, "head")


def test_what_does_not_go_on_from_a_checkpoint_does_not_grow(site: Site) -> None:
    known(site.ledger)
    line = offer(site, JOB.model_copy(update={"preemptible": False}))
    running_on_two(site, line).write_text("weights")
    says(site, 3600.0)
    site.ledger.nodes.set_state("two", NodeState.READY, "")
    assert stopped(site, line) == []


def test_a_quota_keeps_it_from_growing(site: Site) -> None:
    known(site.ledger)
    adopt(site, LINE, {"teams": {"default": {"max_gpus": 4}}})
    line = offer(site)
    running_on_two(site, line).write_text("weights")
    says(site, 3600.0)
    site.ledger.nodes.set_state("two", NodeState.READY, "")
    assert stopped(site, line) == []


def test_a_program_that_has_shrunk_to_one_node_finds_what_it_found_on_two(site: Site) -> None:
    """As `python train.py` does with `init_process_group`, without `torchrun`."""
    narrow = Resources(host_memory="64MiB", cpus=0.1, nodes="1-2")
    attempt = begun(site, RUN, JOB.model_copy(update={"resources": narrow}))
    lease = admitted(attempt)
    told = container_spec(attempt, lease).env
    assert {name: told[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")} == {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "0",
    }  # fmt: skip
    assert not [name for name in told if name.startswith("PET_")]


def test_a_wide_range_costs_no_more_than_what_the_site_has(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    newest = site.ledger.traces.newest

    def counted(network: str, limit: int, team: str | None) -> list[Trace]:
        asked.append(limit)
        return newest(network, limit, team)

    monkeypatch.setattr(site.ledger.traces, "newest", counted)
    wide = Resources(host_memory="64MiB", cpus=0.1, nodes="1-64", gpus="1-1024")
    _, demand = Forecaster(site).forecast(JOB.model_copy(update={"resources": wide}))
    assert (demand.nodes, demand.gpus) == (1, 1)
    assert len(asked) == 1
    never = Resources(host_memory="64MiB", cpus=0.1, nodes="1-64", gpus="3-1024")
    _, demand = Forecaster(site).forecast(JOB.model_copy(update={"resources": never}))
    assert (demand.nodes, demand.gpus) == (1, 3), "of what no node could hold the least is said"


def test_the_options_of_an_estimate_keep_to_the_quota(site: Site) -> None:
    job = JOB.model_copy(update={"owner": "ada"})
    assert {option.gpus for option in estimate_options(site, job)} == {1, 2, 3, 4, 6}
    adopt(site, LINE, {"teams": {"default": {"max_gpus": 4}}})
    assert {option.gpus for option in estimate_options(site, job)} == {1, 2, 3, 4}


def test_a_run_that_would_outlast_all_dates_starts(site: Site) -> None:
    """And so do those behind it: nobody could be granted anything in a pass that fails."""
    short = JOB.model_copy(update={
        "resources": Resources(host_memory="64MiB", cpus=0.1),
        "training": Training(epochs=10**12),
    })  # fmt: skip
    tried = Trace(short.recipe(), "cpu", 0, None, runtime_s=60.0, cpus=0.1, epochs=1,
                  recipe=short.recipe(), run_id="try")  # fmt: skip
    site.ledger.traces.add([tried])
    assert offer(site, short).run_pass().granted == (RUN,)


def test_an_estimate_costs_what_is_said_of_the_run(site: Site) -> None:
    """Of nodes that have a price of their own beside that of their GPUs."""
    for record in site.ledger.nodes.all():
        node = replace(record.node, price_per_hour=4.0, gpu_price_per_hour=2.0)
        site.ledger.nodes.register(node, boot_id="b", worker_token="w", identity=record.identity)
    for job in (JOB, JOB.of_size(Size(1, 0))):
        said, demand = Forecaster(site).forecast(job)
        size = (job.nodes, job.nodes * job.gpus)
        options = {(o.node_count, o.gpus): o for o in estimate_options(site, job)}
        found = options[size].prediction
        assert (found.runtime_s, demand.gpus) == (said.runtime_s, job.gpus)
        assert found.cost == pytest.approx(said.cost)
