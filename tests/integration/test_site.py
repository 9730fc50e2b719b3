"""What a node settles before it takes a run: its runtime, and that its name is its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.errors import EngineUnreachable, NodeNameTaken
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.runtime.port import RuntimeKind
from headway.settings import Settings
from headway.site import Site
from headway.units import MIB

NOBODY_LISTENS = "tcp://127.0.0.1:9"
RUN = "00000000-0000-4000-8000-000000000001"


def node(home: Path, clock: SystemClock | None = None) -> Site:
    settings = Settings(home=home, runtime="auto", node="here", docker_host=NOBODY_LISTENS)
    return Site(settings, clock or SystemClock())


def test_without_an_engine_runs_are_processes_until_the_worker_is_started_anew(tmp_path) -> None:
    node(tmp_path).choose_runtime()
    assert node(tmp_path).runtime.kind is RuntimeKind.PROCESS


def test_an_engine_that_does_not_answer_is_waited_for_while_a_container_runs(tmp_path) -> None:
    site = node(tmp_path)
    site.join()
    document = TrainingJob(name="job", image="image:1", command=["true"]).document()
    site.ledger.runs.enqueue(
        RUN, document, name="job", owner="me", team="default", pool="gpu", priority=0,
        submitted_at=site.ledger.now(),
    )  # fmt: skip
    lease = site.ledger.leases.admit(RUN, "here", Demand(64 * MIB, 0.1), reading=None, ttl_s=60)
    assert isinstance(lease, Lease)
    site.ledger.runs.begin(RUN, 1, lease.token, container="c", runtime="docker")
    site.choose_runtime()
    found = node(tmp_path).runtime
    assert found.kind is RuntimeKind.DOCKER
    with pytest.raises(EngineUnreachable):
        found.containers()


class Meanwhile(SystemClock):
    """A clock on which something else happens whenever somebody waits."""

    def __init__(self, happens) -> None:
        self.happens = happens

    def sleep(self, seconds: float) -> None:
        self.happens()
        super().sleep(min(seconds, 0.05))


@pytest.fixture
def before(tmp_path: Path) -> Site:
    """The node as another boot has left it."""
    site = node(tmp_path)
    site.join()
    there = site.nodes()[0]
    site.ledger.nodes.register(
        replace(there, pool="theirs"), boot_id="another", worker_token="theirs"
    )
    return site


def test_two_machines_cannot_work_under_one_name(before: Site, tmp_path: Path) -> None:
    def report() -> None:
        assert before.ledger.nodes.heartbeat("here", "theirs", before.read_node())

    with pytest.raises(NodeNameTaken, match="HEADWAY_NODE"):
        node(tmp_path, Meanwhile(report)).take_name()


def test_a_machine_started_anew_has_its_name_still(
    before: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.site._SILENT_S", 0.5)
    waits: list[None] = []
    node(tmp_path, Meanwhile(lambda: waits.append(None))).take_name()
    assert waits


def test_a_worker_whose_node_another_one_has_is_told_so(before: Site) -> None:
    assert not before.heartbeat()
