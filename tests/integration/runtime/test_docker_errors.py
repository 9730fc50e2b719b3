"""An engine that answers with a server error: to a question it is no answer, to an order it is."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy, NetworkMode
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.errors import EngineUnreachable, RuntimeFailure
from headway.runtime.port import ContainerSpec, ContainerState
from headway.units import MIB

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves its connections to the garbage collector.
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
ERROR = (500, {"message": "something is wrong just now"})
NAME = "headway-run-1"


class Engine(ThreadingHTTPServer):
    """Answers by the end of the path; an error to what it was not taught."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.taught: dict[str, object] = {"/version": {"ApiVersion": "1.43"}}
        self.refusals: dict[str, tuple[int, object]] = {}


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, Engine)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        found = [body for end, body in self.server.taught.items() if path.endswith(end)]
        refused = [answer for end, answer in self.server.refusals.items() if path.endswith(end)]
        status, said = refused[0] if refused else (200, found[0]) if found else ERROR
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the library's name

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        yield engine
        engine.shutdown()


@pytest.fixture
def runtime(engine: Engine) -> DockerRuntime:
    host = f"tcp://127.0.0.1:{engine.server_port}"
    alone = ContainerPolicy(network=NetworkMode.NONE)
    return DockerRuntime("site", alone, SystemClock(), docker_host=host, timeout_s=20)


def teach_a_created_container(engine: Engine, log: Path) -> None:
    never = "0001-01-01T00:00:00Z"
    teach_a_container(engine, log, "created", never, never)


def teach_a_container(
    engine: Engine, log: Path, status: str, started_at: str, ended_at: str
) -> None:
    labels = {
        "headway.site": "site",
        "headway.run": "run",
        "headway.attempt": "1",
        "headway.log": str(log),
    }
    state = {
        "Status": status, "ExitCode": 0, "OOMKilled": False, "Error": "",
        "StartedAt": started_at, "FinishedAt": ended_at,
    }  # fmt: skip
    container = {
        "Id": "1",
        "Name": f"/{NAME}",
        "Config": {"Labels": labels, "Tty": False},
        "State": state,
    }
    engine.taught[f"/containers/{NAME}/json"] = container


def test_a_question_may_be_asked_again(engine: Engine, runtime: DockerRuntime) -> None:
    for ask in (
        runtime.weaknesses,
        runtime.containers,
        lambda: runtime.inspect(NAME),
        lambda: runtime.wait(NAME, 1.0),
        lambda: runtime.ensure_image("image:1"),
    ):
        with pytest.raises(EngineUnreachable, match="something is wrong just now"):
            ask()
    with pytest.raises(EngineUnreachable, match="inspect container"):
        runtime.read_log(NAME, 0)


@pytest.mark.parametrize("killed", [True, False])
def test_a_kill_for_memory_is_known_where_the_news_came_after_that_of_the_exit(
    engine: Engine, runtime: DockerRuntime, tmp_path: Path, *, killed: bool
) -> None:
    times = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"
    teach_a_container(engine, tmp_path / "log", "exited", *times)
    engine.taught["/events"] = {"Type": "container", "Action": "oom"} if killed else b""
    assert runtime.wait(NAME, 1.0).oom_killed is killed


@pytest.mark.parametrize(
    ("status", "said", "why"),
    [
        (404, "manifest unknown: manifest unknown", "manifest unknown: manifest unknown"),
        (404, "docker.io/library/none:1: not found", "docker.io/library/none:1: not found"),
        (404, "Not Found", None),  # an engine that cannot ask a registry
        (403, "denied: requested access to the resource is denied", None),
        (500, "dial tcp: lookup registry: no such host", None),
    ],
)
def test_only_a_registry_that_has_no_such_image_says_so(
    engine: Engine, runtime: DockerRuntime, status: int, said: str, why: str | None
) -> None:
    name = "docker.io/library/none:1"
    engine.refusals[f"/images/{name}/json"] = (404, {"message": "No such image: none:1"})
    engine.refusals[f"/distribution/{name}/json"] = (status, {"message": said})
    assert runtime.why_no_image("none:1") == why
    assert runtime.pythons({"3.11": "none:1"}) == {}
    del engine.refusals[f"/images/{name}/json"]
    engine.taught[f"/images/{name}/json"] = {"Id": "sha256:1"}
    assert runtime.why_no_image("none:1") == ""
    assert runtime.pythons({"3.11": "none:1"}) == {"3.11": "none:1"}


def test_without_an_engine_nothing_is_said_of_an_image() -> None:
    away = DockerRuntime("s", ContainerPolicy(), SystemClock(), docker_host="tcp://127.0.0.1:1")
    assert away.why_no_image("none:1") is None


def test_an_order_was_refused(engine: Engine, runtime: DockerRuntime, tmp_path: Path) -> None:
    spec = ContainerSpec(
        name=NAME,
        run_id="run",
        attempt=1,
        image="image:1",
        command=("true",),
        env={},
        mounts=(),
        log_path=tmp_path / "log",
        host_memory_bytes=64 * MIB,
        cpus=1.0,
        shm_bytes=MIB,
    )
    engine.taught["/info"] = {"CgroupDriver": "systemd"}
    engine.taught["/library/image:1/json"] = {"Id": f"sha256:{1:064}", "Config": {}}
    with pytest.raises(RuntimeFailure, match="refused to create") as created:
        runtime.create(spec)
    teach_a_created_container(engine, tmp_path / "log")
    with pytest.raises(RuntimeFailure, match="could not be started: something") as started:
        runtime.start(NAME)
    for refused in (created, started):
        assert not isinstance(refused.value, EngineUnreachable)


def test_a_container_at_which_the_engine_fails_is_there_and_hides_no_other(
    engine: Engine, runtime: DockerRuntime, tmp_path: Path
) -> None:
    teach_a_created_container(engine, tmp_path / "log")
    labels = {"headway.site": "site", "headway.run": "run", "headway.attempt": "2"}
    engine.taught["/containers/json"] = [
        {"Id": "bad", "Names": ["/headway-run-2"], "Labels": labels, "State": "running"},
        {"Id": "hand-made", "Names": ["/mine"], "Labels": {"headway.site": "site"}},
        {"Id": NAME, "Names": [f"/{NAME}"], "Labels": labels, "State": "created"},
    ]
    engine.taught["/containers/hand-made/json"] = {"Config": {"Labels": {"headway.site": "site"}}}
    assert [(each.name, each.attempt, each.state) for each in runtime.containers()] == [
        ("headway-run-2", 2, ContainerState.RUNNING),
        (NAME, 1, ContainerState.CREATED),
    ]
    runtime.trim_logs()  # none of these logs can be trimmed: the node's worker goes on
