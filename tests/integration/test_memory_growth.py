"""A program whose job names no memory grows while its node has some; both runtimes."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from headway.clock import SystemClock
from headway.estimate.framework_memory import UNKNOWN_BYTES
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.lease import Lease
from headway.model.run import Exit, ExitKind, RunState
from headway.policy.headroom import compute_headroom
from headway.run.attempt import Attempt
from headway.run.follow import Watched
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from headway.views.run_history import history_of
from headway.views.run_markdown import markdown
from tests.support.postgresql import with_ledger
from tests.support.queued import begun, claim

RUN = str(uuid4())[:-1] + "{}"
"""Of no other test, whose containers bear its name on the same engine."""
GROWS = """
import sys, time
rate, most = float(sys.argv[1]), int(sys.argv[2])
held, since = [], time.monotonic()
for done in range(16, most + 1, 16):
    held.append(b"x" * (16 << 20))
    time.sleep(max(0.0, since + done / rate - time.monotonic()))
"""
"""MiB a second, up to so many MiB."""


class Nobody:
    """A listener that is told all and says nothing."""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        pass

    def watched(self, now: Watched) -> None:
        pass


def job(rate: float, most_mib: int) -> TrainingJob:
    return TrainingJob(
        name="grows",
        image="headway-test/python:local",
        command=["python3", "-c", GROWS, str(rate), str(most_mib)],
        resources=Resources(cpus=0.1),
    )


def here(tmp_path: Path, kind: str) -> Iterator[Site]:
    site = Site(Settings(home=with_ledger(tmp_path), runtime=kind, node="here"), SystemClock())
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "docker":
        request.getfixturevalue("python_image")
    yield from here(tmp_path, request.param)


def ran(site: Site, number: int, what: TrainingJob) -> tuple[Attempt, Exit]:
    """The run's attempt, to its end."""
    attempt = begun(site, RUN.format(number), what)
    lease = attempt.admit()
    assert isinstance(lease, Lease), lease
    exit_, _ = attempt.settle(attempt.train(lease, dict, Nobody()))
    return attempt, exit_


@pytest.mark.parametrize("rate", [200.0, 1024.0])
def test_a_program_grows_while_its_node_has_memory(site: Site, rate: float) -> None:
    attempt, exit_ = ran(site, 1, job(rate, UNKNOWN_BYTES // MIB + 768))
    assert exit_.kind is ExitKind.OK, exit_
    guessed, granted = attempt.record.demand, site.ledger.leases.of_run(attempt.run_id)
    assert guessed is not None
    assert granted is not None
    assert granted.host_memory_bytes > guessed.host_memory_bytes
    told = markdown(history_of(site, attempt.record))
    assert "raised from" in told


def test_where_a_neighbour_took_the_memory_it_is_killed_and_tried_with_more(site: Site) -> None:
    claim(site, RUN.format(1), job(500.0, UNKNOWN_BYTES // MIB + 1024))
    record = site.ledger.nodes.get("here")
    assert record is not None
    room = compute_headroom(record.node, site.ledger.leases.live("here"), record.reading).host
    left = Resources(cpus=0.1, host_memory=int(room.free_bytes) - 256 * MIB)
    neighbour = claim(site, RUN.format(2), job(1.0, 1).model_copy(update={"resources": left}))
    assert isinstance(neighbour, Lease)
    attempt, exit_ = ran(site, 1, job(500.0, UNKNOWN_BYTES // MIB + 1024))
    assert exit_.kind is ExitKind.OUT_OF_MEMORY
    assert "the node had no more" in exit_.message
    again = attempt.record
    assert again.state is RunState.WAITING
    granted = attempt.lease
    assert granted is not None
    assert (again.demand_override or {})["host_memory_bytes"] > granted.host_memory_bytes * 1.2
    assert site.ledger.leases.of_run(RUN.format(2)) == neighbour  # nothing was taken of its own


def test_what_a_job_or_a_quota_names_is_no_guess(tmp_path: Path) -> None:
    site = next(here(tmp_path, "process"))
    named = job(500.0, 256).model_copy(update={"resources": Resources(host_memory="128MiB")})
    attempt, exit_ = ran(site, 1, named)
    assert exit_.kind is ExitKind.OUT_OF_MEMORY
    assert "raised" not in exit_.message
    assert attempt.record.state is RunState.WAITING
