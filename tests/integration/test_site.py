"""What a node settles before it takes a run: its runtime, and that its name is its own."""

import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.errors import NodeNameTaken
from headway.home import node_identity
from headway.model.job import TrainingJob
from headway.model.lease import Demand
from headway.model.node import MemoryMeans
from headway.runtime.errors import EngineSilent, EngineUnreachable
from headway.runtime.port import RuntimeKind
from headway.settings import Settings
from headway.site import Site
from headway.telemetry.errors import TelemetryTimeout
from headway.this_node import check_name, heartbeat, join_site, read_node, try_means_again
from headway.units import MIB
from tests.ports.telemetry import FakeGpus
from tests.support.leading import grant_in_term
from tests.support.on_ledger import enqueue
from tests.support.postgresql import new_ledger, with_ledger

NO_ENGINE = "unix:///nowhere/docker.sock"
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""The Docker SDK leaks its socket where nobody listens."""


@pytest.fixture(autouse=True)
def _leaked() -> Iterator[None]:
    yield
    gc.collect()


NOBODY_LISTENS = "tcp://127.0.0.1:9"
RUN = "00000000-0000-4000-8000-000000000001"


def node(home: Path, clock: SystemClock | None = None, engine: str = NO_ENGINE) -> Site:
    settings = Settings(home=with_ledger(home), runtime="auto", node="here", docker_host=engine)
    return Site(settings, clock or SystemClock())


def test_without_an_engine_runs_are_processes_until_the_worker_is_started_anew(tmp_path) -> None:
    node(tmp_path).choose_runtime()
    assert node(tmp_path).runtime.kind is RuntimeKind.PROCESS


@pytest.fixture
def silent_engine(tmp_path: Path) -> str:
    """Address of a socket that is there, and nobody listens."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    return f"unix://{path}"


def test_an_engine_that_is_closed_to_this_user_is_said_to_be(
    tmp_path: Path, silent_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that none answers, to who only had to join a group."""
    assert "no container engine answers" in node(tmp_path).chosen.why_no_engine
    monkeypatch.setattr("os.access", lambda _path, _mode: False)  # root may open everything
    site = node(tmp_path, engine=silent_engine)
    site.choose_runtime()
    assert site.runtime.kind is RuntimeKind.PROCESS
    assert "docker.sock is closed to " in site.chosen.why_no_engine


def test_an_engine_that_is_only_silent_is_not_done_without(
    tmp_path: Path, silent_engine: str
) -> None:
    for address in (silent_engine, NOBODY_LISTENS):
        with pytest.raises(EngineSilent, match="HEADWAY_RUNTIME=process") as refused:
            node(tmp_path, engine=address).choose_runtime()
        assert refused.value.address == address
    assert not (tmp_path / "state" / "runtime").exists()


@pytest.mark.parametrize("left_by", ["this version", "version 0.1"])
def test_a_node_that_has_had_an_engine_never_does_without_it(tmp_path: Path, left_by: str) -> None:
    """Its socket is gone too: dockerd was stopped, and programs would run unconfined."""
    (tmp_path / "state").mkdir()
    if left_by == "this version":
        (tmp_path / "state" / "engine").touch()
        (tmp_path / "state" / "runtime").write_text("process")
    else:
        (tmp_path / "state" / "runtime").write_text("docker")
    with pytest.raises(EngineSilent, match="has or had one"):
        node(tmp_path).choose_runtime()


@pytest.mark.docker
def test_that_an_engine_answered_is_remembered(tmp_path: Path, docker_engine: None) -> None:
    settings = Settings(home=with_ledger(tmp_path), runtime="auto", node="here")
    Site(settings, SystemClock()).choose_runtime()
    assert node(tmp_path).runtime.kind is RuntimeKind.DOCKER
    (tmp_path / "state" / "runtime").unlink()
    with pytest.raises(EngineSilent):
        node(tmp_path).choose_runtime()


def test_an_engine_that_does_not_answer_is_waited_for_while_a_container_runs(tmp_path) -> None:
    site = node(tmp_path)
    join_site(site)
    document = TrainingJob(name="job", image="image:1", command=["true"]).document()
    enqueue(site.ledger, RUN, document, name="job", team="default", submitted_at=site.ledger.now())
    lease = grant_in_term(site.ledger, RUN, "here", Demand(64 * MIB, 0.1))
    site.ledger.runs.begin(lease.fence, container="c", runtime="docker", ttl_s=60.0)
    site.choose_runtime()
    found = node(tmp_path, engine=NOBODY_LISTENS).runtime
    assert found.kind is RuntimeKind.DOCKER
    with pytest.raises(EngineUnreachable):
        found.containers()


class LimitingGpus(FakeGpus):
    """Whose driver takes limits, whatever groups this machine has."""

    def means(self, group: Path | None) -> dict[str, tuple[MemoryMeans, str]]:
        super().means(group)
        return {"GPU-0": (MemoryMeans.DRIVER_LIMIT, "")}


def test_what_a_driver_did_not_answer_is_tried_again_and_what_it_refused_is_not(
    tmp_path: Path,
) -> None:
    site = node(tmp_path)
    gpus = site.gpus = LimitingGpus.idle(1)

    def kept() -> tuple[MemoryMeans, str, bool]:
        (gpu,) = site.ledger.nodes.all()[0].node.capacity.gpus
        return gpu.kept_by, gpu.kept_why, gpu.tries_again

    join_site(site)
    best, refused = (MemoryMeans.DRIVER_LIMIT, "", False), (MemoryMeans.WATCH, "refused", False)
    assert kept() == best
    site.ledger.nodes.watch_alone("here", "GPU-0", "refused", tries_again=False)
    try_means_again(site)
    assert kept() == refused
    site.ledger.nodes.watch_alone("here", "GPU-0", "no answer", tries_again=True)
    gpus.error = TelemetryTimeout("NVML", 5.0)
    try_means_again(site)
    assert kept() == (MemoryMeans.WATCH, "no answer", True)
    gpus.error = None
    try_means_again(site)
    assert kept() == best


def test_two_homes_cannot_work_as_one_node(tmp_path: Path) -> None:
    """On one machine even: the second would take the first one's runs for lost."""
    ledger = SecretStr(new_ledger())
    homes = [tmp_path / "first", tmp_path / "second"]
    first, second = (
        Site(Settings(home=home, node="here", ledger_url=ledger), SystemClock()) for home in homes
    )
    join_site(first)
    with pytest.raises(NodeNameTaken, match="HEADWAY_NODE") as refused:
        join_site(second)
    with pytest.raises(NodeNameTaken):  # as `headway up` and `headway node join` say at once
        check_name(second.ledger, second.settings)
    check_name(first.ledger, first.settings)
    assert refused.value.name == "here"
    assert heartbeat(first, read_node(first))
    first.ledger.nodes.remove("here")
    join_site(second)
    assert not heartbeat(first, read_node(first))
    with pytest.raises(NodeNameTaken):
        join_site(first)


def test_a_worker_that_is_started_anew_has_its_name_still(tmp_path: Path) -> None:
    before = node(tmp_path)
    join_site(before)
    here = before.ledger.nodes.all()[0].node
    before.ledger.nodes.register(
        here, boot_id="another", worker_token="w", identity=node_identity(tmp_path)
    )  # as the machine was before it was started anew, a moment ago
    after = node(tmp_path)
    join_site(after)
    assert heartbeat(after, read_node(after))
    assert not heartbeat(before, read_node(before))
