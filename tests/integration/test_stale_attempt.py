"""An attempt whose run went on elsewhere, or was ended: it leaves, and touches nothing newer."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prefect.exceptions import Abort

from flows import train
from flows.leaving import state_of
from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement
from headway.run.attempt import Attempt
from headway.run.here import container_name
from headway.runtime.port import ContainerState
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.support.fence import fence_of
from tests.support.flow_process import steps_without_prefect
from tests.support.leading import admit_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue
from tests.support.site import wait_for

RUN = "00000000-0000-4000-8000-000000000001"
JOB = TrainingJob(
    name="job",
    image="image:1",
    command=["sleep", "60"],
    resources=Resources(host_memory="64MiB", cpus=0.1),
    stop_grace="1s",
)
LOST = Exit(ExitKind.INFRASTRUCTURE, None, "its node was removed")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    here = Site(
        Settings(home=with_ledger(tmp_path / "here"), runtime="process", node="here"), SystemClock()
    )
    url = here.settings.database_url
    there = Site(
        Settings(home=tmp_path / "there", runtime="process", node="there", ledger_url=url),
        SystemClock(),
    )
    join_site(here)
    join_site(there)
    yield here, there
    for site in (here, there):
        for container in site.runtime.containers():
            site.runtime.remove(container.name)
        site.ledger.close()


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPoolExecutor]:
    """Runs attempts without Prefect: its steps are plain functions."""
    for name, value in steps_without_prefect().items():
        monkeypatch.setattr(train, name, value)
    with ThreadPoolExecutor(1) as pool:
        yield pool


def start(flow: ThreadPoolExecutor, site: Site) -> Future[Any]:
    """Claim the run here and follow it, until its container runs."""
    enqueue(site, RUN, JOB)
    admit(site)
    ends = flow.submit(train.run_attempt, site, RUN)
    wait_for(lambda: alive(site, 1), lambda: ends)
    return ends


def admit(site: Site) -> Lease:
    lease = admit_in_term(site.ledger, RUN, site.settings.node, Demand(64 * MIB, 0.1), ttl_s=900.0)
    assert isinstance(lease, Lease), lease
    return lease


def alive(site: Site, attempt: int) -> bool:
    status = site.runtime.inspect(container_name(RUN, attempt))
    return status is not None and status.state is ContainerState.RUNNING


def test_it_leaves_when_its_node_was_removed_and_another_attempt_runs(
    sites: tuple[Site, Site], flow: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = sites
    granted = Event()

    def state_once_granted(*args: Any) -> object:
        """What the ledger says before is another answer: the run waits."""
        assert granted.wait(60)
        return state_of(*args)

    monkeypatch.setattr(train, "state_of", state_once_granted)
    ends = start(flow, here)
    here.ledger.runs.requeue(fence_of(here.ledger, RUN), LOST)
    here.ledger.nodes.remove("here")
    lease = admit(there)
    granted.set()
    newer = Attempt(there, RUN)
    newer.launch(lease, dict)
    before, begun = there.ledger.runs.get(RUN), there.ledger.leases.of_run(RUN)
    with pytest.raises(Abort, match="attempt 1 of run"):
        ends.result(60)
    assert here.runtime.inspect(container_name(RUN, 1)) is None
    assert there.runtime.inspect(newer.container) is not None
    assert there.ledger.runs.get(RUN) == before
    assert there.ledger.leases.of_run(RUN) == begun


def test_it_leaves_with_the_ledgers_exit_when_the_run_was_ended(
    sites: tuple[Site, Site], flow: ThreadPoolExecutor
) -> None:
    here, _ = sites
    ends = start(flow, here)
    fence = fence_of(here.ledger, RUN)
    cancelled = Exit(ExitKind.CANCELLED, None, "cancelled by its user")
    here.ledger.runs.finish(fence, cancelled, Measurement())
    here.ledger.leases.release(fence)
    state = ends.result(60)
    assert (state.name, state.message) == ("Cancelled", cancelled.message)
    assert here.runtime.inspect(container_name(RUN, 1)) is None
    assert here.ledger.runs.get(RUN).exit == cancelled


def test_what_a_newer_attempt_has_on_this_node_stays(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    enqueue(here, RUN, JOB)
    admit(here)
    stale = Attempt(here, RUN)
    here.ledger.leases.give_back(stale.fence)
    newer = admit(here)
    here.ledger.staged.record("here", "key", "/data/set", 5, "a" * 64)
    here.ledger.staged.acquire("here", "key", RUN)
    stale.clean_up()
    (data,) = here.ledger.staged.list("here")
    assert data.run_ids == (RUN,)
    assert here.ledger.leases.of_run(RUN) == newer


def test_a_leaving_process_says_only_what_the_ledger_says(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    enqueue(here, RUN, JOB)
    assert state_of(here, RUN, "waits").name == "AwaitingRetry"
    admit(here)
    with pytest.raises(Abort, match="no longer this process's"):
        state_of(here, RUN, "another process has it")
    here.ledger.runs.finish(fence_of(here.ledger, RUN), LOST, Measurement())
    assert state_of(here, RUN, "ended").message == LOST.message


def test_a_process_that_is_slow_to_end_does_not_end_the_retry_of_its_run(
    sites: tuple[Site, Site], flow: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user saw the end, and wanted it once more, while this process drew its report."""
    here, there = sites

    def retry(attempt: Attempt) -> None:
        assert here.ledger.runs.told(RUN, attempt.number)
        assert here.ledger.runs.retry(RUN, attempt.number)
        admit(there)

    monkeypatch.setattr(train, "_tell", retry)
    ends = start(flow, here)
    here.ledger.runs.finish(fence_of(here.ledger, RUN), LOST, Measurement())
    with pytest.raises(Abort, match="no longer this process's"):
        ends.result(60)
    assert there.ledger.runs.get(RUN).attempt == 2
