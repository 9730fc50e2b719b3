"""A site goes down: what runs on its node goes on, or back to the queue."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.admin import down
from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.lease import Demand
from headway.model.run import RunState
from headway.node.flowlock import LiveFlows
from headway.prefect.client import PrefectServer
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.support.leading import grant_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue

RUN, BESIDE = (f"00000000-0000-4000-8000-00000000000{at}" for at in (1, 2))
JOB = TrainingJob(name="job", image="image:1", command=["true"])
NOTHING: down.Halted = {"stopped": [], "requeued": [], "going_on": []}
HOLDS = """
import signal, sys, time
from headway.node.flowlock import lock_flow
signal.signal(signal.SIGTERM, signal.SIG_IGN)
assert lock_flow(sys.argv[1], sys.argv[2]) is not None
print("holds", flush=True)
time.sleep(600)
"""


class Prefect(PrefectServer):
    """Of a site: it is told of ends."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1/api", auth=None)
        self.ended: list[tuple[str, str]] = []

    def end(self, run_id: str, state_type: str, message: str, *, name: str = "") -> None:
        self.ended.append((run_id, state_type))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    site.make_ledger()
    join_site(site)
    yield site
    site.ledger.close()


@contextmanager
def flow(site: Site, run_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """A flow process that is deaf to SIGTERM."""
    command = [sys.executable, "-c", HOLDS, str(site.settings.state_dir), run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_where_no_site_is_none_is_made(tmp_path: Path) -> None:
    said: list[str] = []
    empty = Site(Settings(home=tmp_path / "none"), SystemClock())
    assert down.take_down(empty, said.append, down.AtDown.GO_ON) == NOTHING
    assert said == [f"nothing was running: there is no site in {tmp_path / 'none'}"]
    assert not (tmp_path / "none").exists()


def test_of_a_site_that_is_down_nothing_is_started_though_its_engine_does_not_tell(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Site) -> dict[str, str]:
        return {"what runs in the engine (no answer)": ""}

    def begun(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(down, "_alive_here", away)
    monkeypatch.setattr(down, "start_database", begun)
    monkeypatch.setattr(down, "start_guard", begun)
    site.settings.state_dir.mkdir(exist_ok=True)
    done = down.take_down(site, lambda _: None, down.AtDown.STOP)
    assert done == NOTHING | {"going_on": None}


def test_an_estimate_that_is_being_made_is_ended_and_prefect_told(site: Site) -> None:
    """It is no run of the ledger, so no janitor would tell."""
    enqueue(site, RUN, JOB)
    server, flows = Prefect(), LiveFlows(site.settings.state_dir, site.clock)
    with flow(site, BESIDE) as beside, flow(site, RUN) as of_a_run:
        down._end_beside(site, server, flows)
        assert beside.wait(30) == -9
        assert of_a_run.poll() is None
    assert server.ended == [(BESIDE, "CANCELLED")]


def test_a_flow_process_that_does_not_leave_is_killed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "_LEAVE_S", 0.5)
    flows = LiveFlows(site.settings.state_dir, site.clock)
    with flow(site, RUN) as process:
        down._end_flows(site, flows)
        assert process.wait(30) == -9
    assert not flows.now()


def test_a_run_that_is_stopped_waits_for_an_attempt_that_counts_as_no_failure(site: Site) -> None:
    enqueue(site, RUN, JOB)
    demand = Demand(host_memory_bytes=64 * MIB, cpus=0.1)
    grant_in_term(site.ledger, RUN, "here", demand)
    site.choose_runtime()
    assert down._requeue(site, site.ledger.runs.get(RUN)) == [RUN]
    run = site.ledger.runs.get(RUN)
    assert (run.state, run.attempt, "(headway down)" in run.reason) == (RunState.WAITING, 2, True)
    assert site.ledger.attempts.failures([RUN]) == {}
    # As after a `down` that let it go on: what it held goes, and no server is asked.
    site.settings.state_dir.mkdir(exist_ok=True)
    flows = LiveFlows(site.settings.state_dir, site.clock)
    assert down._see_them_end(site, flows, limit_s=5.0) == set()
