"""Starting the site's own processes on one machine: the Prefect server and this node's worker.

On servers that have systemd, the units below `deployments/systemd/` do the
same and restart what dies.
"""

import fcntl
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from headway.admin.environment import site_environment
from headway.clock import Clock
from headway.credentials import noted_gateway
from headway.errors import HeadwayError
from headway.node import daemon as daemons
from headway.node.daemon import Daemon
from headway.node.forkstart import PRELOAD, PRELOAD_ENV, end_server, start_server
from headway.pinning import reached_by_itself, trust
from headway.prefect.auth import have_auth
from headway.prefect.client import PrefectServer
from headway.project import VERSION_CHECK
from headway.settings import Settings
from headway.units import format_duration
from headway.waits import waiting_for

log = logging.getLogger(__name__)
Say = Callable[[str], None]

_START_S = 300.0
"""A process that was killed or cannot start ends at once; one that is slow is on a busy machine."""
SCHEDULER = ("headway.leader.process",)
"""The module that is a scheduler of this node's pool."""
FOLLOWER = ("headway.leader.follower",)
"""The module that follows what was handed to engines from this node."""
GATEWAY = ("headway.cli.main", "gateway")
_ON_A_NODE = (
    "headway.node.guard",
    "headway.admin.supervisor",
    "headway.worker.gpu_node",
    "headway.leader.process",
    "headway.leader.follower",
    "prefect.cli.worker",
)
_OF_A_SITE = (
    "headway.cli.main",
    "headway.cli.gateway",
    "headway.gateway.app",
    "prefect.cli.server",
    "prefect.server.api.server",
)
_ANSWER_S = 10.0
"""For an answer; one that is busy takes seconds."""


class StartFailed(HeadwayError):
    """A process of the site did not come up; its log says why."""

    def __init__(self, what: str, log: Path, cause: str) -> None:
        self.what = what
        self.log = log
        self.cause = cause
        super().__init__(f"{what} did not start ({cause}); its last words are in {log}")


@contextmanager
def only_one(settings: Settings) -> Iterator[None]:
    """Hold the site's lock: two `headway up` at once start one server."""
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (settings.state_dir / "up.lock").open("w") as lock:
        with waiting_for("another `headway up` or `headway down` of this home"):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def start_prefect(settings: Settings, clock: Clock, say: Say) -> bool:
    """Start the Prefect server unless it answers already; whether it was started.

    Raises:
        StartFailed: It ended, or does not answer within two minutes; or
            another program's server has the port.
    """
    daemon = daemons.server_daemon(settings)
    with (
        daemon.starting(),
        PrefectServer(settings.api_url, auth=have_auth(settings), timeout_s=5.0) as server,
    ):
        if daemon.runs(say, hangs=server_hangs(settings)) and server.is_healthy():
            if server.accepts():
                return False
            say("the Prefect server does not ask for this site's auth string: restarting it …")
            daemons.worker_daemon(settings).stop(signal.SIGTERM, 10.0)  # it does not know it either
            daemon.stop(signal.SIGTERM, 20.0)
        if daemon.process() is None and _port_is_taken(settings.host, settings.port):
            raise _taken(daemon, "the Prefect server", settings.host, settings.port, "HEADWAY_PORT")
        say(f"starting the Prefect server at {settings.api_url.removesuffix('/api')} …")
        if daemon.process() is None:
            daemon.start_python(server_command(settings), site_environment(settings))
        await_ready(daemon, "the Prefect server", server.is_healthy, _START_S, clock)
    return True


def server_command(settings: Settings) -> list[str]:
    """The module that is this site's Prefect server, and its arguments."""
    return ["prefect", "server", "start", "--host", settings.host, "--port", str(settings.port)]


def start_forks(settings: Settings) -> bool:
    """Start the fork server of this node, which starts the others; whether it was started.

    Raises:
        HeadwayError: It did not start.
    """
    daemon = daemons.fork_daemon(settings)
    with daemon.starting():
        if daemon.runs(log.warning):
            return False
        end_server(settings.state_dir)  # it has no record: an earlier version started it
        modules = (*PRELOAD, *_ON_A_NODE, *(() if settings.is_guest else _OF_A_SITE))
        start_server(settings.state_dir, modules, site_environment(settings) | PRELOAD_ENV)
    return True


def start_guard(settings: Settings, clock: Clock, say: Say) -> bool:
    """Start this node's guard unless it runs; whether it was started."""
    what, module = f"the guard of node {settings.node}", ["headway.node.guard"]
    daemon, env = daemons.guard_daemon(settings), site_environment(settings)
    return _start(daemon, what, module, env, say, clock=clock)


def start_worker(settings: Settings, clock: Clock, say: Say) -> bool:
    """Start this node's worker unless it runs; whether it was started."""
    what = f"the worker of node {settings.node} in pool {settings.pool}"
    env = site_environment(settings) | {VERSION_CHECK: str(settings.is_guest)}
    daemon, command = daemons.worker_daemon(settings), worker_command(settings)
    return _start(daemon, what, command, env, say, clock=clock)


def start_scheduler(settings: Settings, say: Say) -> bool:
    """Start a scheduler here unless one runs; whether it was started.

    It ends by itself where another node leads the pool.
    """
    what = f"the scheduler of pool {settings.pool}"
    daemon, env = daemons.scheduler_daemon(settings), site_environment(settings)
    return _start(daemon, what, SCHEDULER, env, say)


def start_follower(settings: Settings, say: Say) -> bool:
    """Start what follows the jobs on engines unless it runs; whether it was started."""
    what = f"the follower of engines whose submit host is node {settings.node}"
    daemon, env = daemons.follower_daemon(settings), site_environment(settings)
    return _start(daemon, what, FOLLOWER, env, say)


def _start(
    daemon: Daemon,
    what: str,
    module: Sequence[str],
    env: Mapping[str, str],
    say: Say,
    *,
    clock: Clock | None = None,
) -> bool:
    """Have *module* be *daemon* unless that runs; whether it was started.

    With a *clock* it is waited for until it has made the file that says that it is ready.
    """
    with daemon.starting():
        if daemon.runs(say):
            return False
        say(f"starting {what} …")
        ready = daemon.state_dir / f"{daemon.name}.ready"
        ready.unlink(missing_ok=True)
        daemon.start_python(module, env)
        if clock is not None:
            await_ready(daemon, f"the {daemon.name}", ready.exists, _START_S, clock)
    return True


def worker_command(settings: Settings) -> list[str]:
    """The module that is this node's worker, and its arguments."""
    command = ["prefect", "worker", "start", "--type", "gpu-node"]
    return [*command, "--pool", settings.pool, "--name", settings.node]


def start_gateway(settings: Settings, clock: Clock, say: Say) -> bool:
    """Start this site's gateway unless it runs; whether it was started.

    Raises:
        StartFailed: It ended, or does not answer in time; or another program has the port.
    """
    daemon = daemons.gateway_daemon(settings)
    with daemon.starting():
        if daemon.runs(say, hangs=gateway_hangs(settings)):
            return False
        host = reached_by_itself(settings.gateway_host)
        if _port_is_taken(host, settings.gateway_port):
            raise _taken(daemon, "the gateway", host, settings.gateway_port, "HEADWAY_GATEWAY_PORT")
        say(f"starting the gateway on {settings.gateway_host}:{settings.gateway_port} …")
        settings.gateway_note.unlink(missing_ok=True)  # that of a gateway before this one
        daemon.start_python(GATEWAY, site_environment(settings))
        await_ready(daemon, "the gateway", lambda: gateway_answers(settings), _START_S, clock)
    return True


def gateway_answers(settings: Settings) -> bool:
    """Whether the site's gateway answers where it is noted to be."""
    return _gateway_answers(settings) is True


def gateway_hangs(settings: Settings) -> bool:
    """Whether the gateway is there and gives no answer."""
    return _gateway_answers(settings) is None


def server_hangs(settings: Settings) -> bool:
    """Whether the Prefect server is there and gives no answer."""
    return _answers(f"{settings.api_url}/health", None) is None


def _gateway_answers(settings: Settings) -> bool | None:
    place = noted_gateway(settings)
    return place is not None and _answers(f"{place.url}/v1/health", place.certificate)


def _answers(url: str, certificate: str | None) -> bool | None:
    """Whether what listens there answers well; None where it says nothing in time.

    What does not listen may be starting.
    """
    known = trust(url, certificate)
    try:
        return httpx.get(url, timeout=_ANSWER_S, trust_env=False, verify=known).is_success
    except httpx.TimeoutException:
        return None
    except httpx.TransportError:
        return False


def _taken(daemon: Daemon, what: str, host: str, port: int, name: str) -> StartFailed:
    cause = f"something else listens on {host}:{port}; set {name} to another port"
    return StartFailed(what, daemon.log, cause)


def _port_is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def await_ready(
    daemon: Daemon, what: str, ready: Callable[[], bool], limit_s: float, clock: Clock
) -> None:
    """Wait until *ready*.

    Raises:
        StartFailed: The process ended, or was not ready within *limit_s*.
    """
    end = clock.monotonic_s() + limit_s
    with waiting_for(f"{what} to be ready, at most {format_duration(limit_s)}; see {daemon.log}"):
        while not ready():
            if daemon.process() is None:
                raise StartFailed(what, daemon.log, "it ended")
            if clock.monotonic_s() > end:
                raise StartFailed(what, daemon.log, f"no answer within {format_duration(limit_s)}")
            clock.sleep(0.1)
