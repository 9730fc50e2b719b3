"""An attempt that a second flow process takes over, on a real ledger and the process runtime."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.attempt import Attempt, exit_of
from headway.clock import SystemClock
from headway.errors import ImpossibleDemand, StagingTimedOut
from headway.model.job import Dataset, Resources, TrainingJob
from headway.model.lease import Lease
from headway.model.node import Reserve
from headway.model.run import ExitKind, Prediction, Step, StepState
from headway.settings import Settings
from headway.site import Site
from headway.units import MIB
from tests.support.containers import create_container
from tests.support.site import wait_for

RUN = "00000000-0000-4000-8000-000000000001"
JOB = TrainingJob(
    name="job",
    image="image:1",
    command=["sleep", "60"],
    resources=Resources(host_memory="64MiB", cpus=0.1),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(Settings(home=tmp_path, runtime="process", node="here"), SystemClock())
    site.join()
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


def test_what_runs_is_followed_though_it_would_not_be_admitted_any_more(site: Site) -> None:
    first = Attempt(site, RUN, JOB)
    lease = first.admit()
    assert isinstance(lease, Lease)
    demand = site.ledger.runs.get(RUN).demand
    assert demand is not None
    said = Prediction(runtime_s=4711.0, basis="said before the start")
    site.ledger.runs.predict(RUN, said, replace(demand, host_memory_bytes=65 * MIB))
    (node,) = site.nodes()
    all_of_it = Reserve(0.0, node.capacity.host_memory_bytes)
    full = replace(node, reserve=all_of_it)
    site.ledger.nodes.register(full, boot_id="b", worker_token="w")
    with pytest.raises(ImpossibleDemand):
        Attempt(site, RUN, JOB).admit()
    site.runtime.start(create_container(site, RUN))
    assert Attempt(site, RUN, JOB).admit() == lease
    assert site.ledger.runs.get(RUN).prediction == said


def test_staging_counts_as_the_jobs_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JOB.model_copy(update={"max_runtime": 5.0, "dataset": Dataset(uri="/data/set")})
    attempt = Attempt(site, RUN, job)

    def stage(dataset: Dataset, run_id: str, **given: Any) -> None:
        raise StagingTimedOut(dataset.uri, given["limit_s"])

    monkeypatch.setattr(site.cache, "stage", stage)
    with pytest.raises(StagingTimedOut) as late:
        attempt.stage_data(lambda done, total: None)
    assert late.value.limit_s == 5.0
    assert attempt.fail(exit_of(late.value)).kind is ExitKind.TIMED_OUT
    assert attempt.ended  # not tried again: the next one would take as long


def test_training_has_what_staging_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(site, RUN, JOB.model_copy(update={"max_runtime": 10.0}))
    assert attempt._time_left_s() == 10.0
    began = site.clock.now()
    steps = [
        Step("stage_data", number, StepState.DONE, began, began + timedelta(seconds=4))
        for number in (attempt.number, attempt.number + 1)
    ]
    monkeypatch.setattr(site.ledger.runs, "steps", lambda _: steps)
    assert attempt._time_left_s() == 6.0
    assert Attempt(site, RUN, JOB)._time_left_s() is None


def test_what_a_run_holds_of_the_host_is_read_with_the_node(site: Site) -> None:
    """Else its memory would count as a stranger's beside what it was granted."""
    assert isinstance(Attempt(site, RUN, JOB).admit(), Lease)
    site.runtime.start(create_container(site, RUN))
    held = wait_for(
        lambda: site.read_node().run_host_bytes.get(RUN),
        20,
        lambda: f"not told: {site.read_node()}",
    )
    assert 0 < held < 64 * MIB
