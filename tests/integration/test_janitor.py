"""The janitor on a real ledger and the process runtime, after deaths between two writes."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.attempt import container_name
from headway.clock import SystemClock
from headway.janitor import Janitor, PrefectRun
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, RunState
from headway.policy.reconcile import PrefectView
from headway.runtime.port import ContainerSpec
from headway.settings import Settings
from headway.site import Site
from headway.units import MIB

RUN = "00000000-0000-4000-8000-000000000001"
RANK = "00000000-0000-4000-8000-000000000002"
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(Settings(home=tmp_path, runtime="process", node="here"), SystemClock())
    site.join()
    job = TrainingJob(name="job", image="image:1", command=["true"])
    site.ledger.runs.enqueue(
        RUN,
        job.document(),
        name="job",
        owner="me",
        team="default",
        pool="gpu",
        priority=0,
        submitted_at=site.ledger.now(),
    )
    return site


def admit(site: Site) -> Lease:
    lease = site.ledger.leases.admit(RUN, "here", DEMAND, reading=None, ttl_s=60)
    assert isinstance(lease, Lease)
    return lease


def mend(site: Site) -> None:
    janitor = Janitor(site)
    seen = {RUN: PrefectRun(PrefectView.SCHEDULED, 1)}
    janitor.round(janitor.unsettled(), seen, frozenset())


def test_a_run_that_cannot_be_read_stops_no_other(site: Site) -> None:
    """As one that another version of headway put into the ledger."""
    first = "00000000-0000-4000-8000-000000000000"
    site.ledger.runs.enqueue(
        first,
        {"name": "of another version"},
        name="unreadable",
        owner="me",
        team="default",
        pool="gpu",
        priority=0,
        submitted_at=site.ledger.now(),
    )
    lease = admit(site)
    site.ledger.runs.begin(RUN, 1, lease.token, container="c", runtime="process")
    site.ledger.runs.requeue(RUN, Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    mend(site)
    assert site.ledger.leases.of_run(RUN) is None


def test_a_lease_that_a_requeued_run_left_behind_goes(site: Site) -> None:
    lease = admit(site)
    site.ledger.runs.begin(RUN, 1, lease.token, container="c", runtime="process")
    site.ledger.runs.requeue(RUN, Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    # The process died here, before it could release the lease.
    mend(site)
    assert site.ledger.leases.of_run(RUN) is None
    assert admit(site).attempt == 2


def test_a_run_claimed_since_it_was_looked_at_keeps_its_lease(site: Site) -> None:
    janitor = Janitor(site)
    runs = janitor.unsettled()
    lease = admit(site)
    janitor.round(runs, {RUN: PrefectRun(PrefectView.SCHEDULED, 0)}, frozenset())
    assert site.ledger.leases.of_run(RUN) == lease


def test_a_run_on_another_node_is_left_to_its_janitor(site: Site, tmp_path: Path) -> None:
    other = Site(
        Settings(
            home=tmp_path / "other",
            runtime="process",
            node="there",
            ledger_url=site.settings.database_url,
        ),
        SystemClock(),
    )
    other.join()
    lease = admit(site)
    site.ledger.runs.begin(RUN, 1, lease.token, container="c", runtime="process")
    site.ledger.runs.requeue(RUN, Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    mend(other)
    assert site.ledger.leases.of_run(RUN) is not None
    assert site.ledger.runs.get(RUN).state is RunState.WAITING


def start(site: Site, run_id: str) -> str:
    name = container_name(run_id, 1)
    log = site.settings.runs_dir / run_id / "log"
    log.mkdir(parents=True)
    site.runtime.create(
        ContainerSpec(
            name=name,
            run_id=run_id,
            attempt=1,
            image="image:1",
            command=("sleep", "60"),
            env={},
            mounts=(),
            log_path=log / "attempt-1.log",
            host_memory_bytes=64 * MIB,
            cpus=0.1,
            shm_bytes=MIB,
        )
    )
    return name


def test_a_container_that_came_since_the_runs_were_read_stays(site: Site) -> None:
    site.ledger.nodes.register(
        replace(site.nodes()[0], name="there"), boot_id="b", worker_token="w"
    )
    lease = site.ledger.leases.admit(RUN, "there", DEMAND, reading=None, ttl_s=60, others=["here"])
    assert isinstance(lease, Lease)
    janitor = Janitor(site)
    runs = janitor.unsettled()
    (held,) = site.ledger.leases.untaken(RUN)
    site.ledger.leases.take(held.lease_id, RUN, 1, RANK)
    name = start(site, RANK)
    janitor.round(runs, {}, frozenset())
    assert site.runtime.inspect(name) is not None
    site.ledger.leases.release(RANK)
    janitor.round(runs, {}, frozenset())
    assert site.runtime.inspect(name) is None


def test_a_container_of_a_ledger_before_this_one_stops_no_round(site: Site) -> None:
    name = start(site, RANK)
    mend(site)
    assert site.runtime.inspect(name) is None
