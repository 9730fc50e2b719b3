"""The site's own processes on one machine: the Prefect server and this node's worker.

A process is known by its pid *and* its start time, so that a reused pid is
never taken for ours. On servers that have systemd, the units below
`deployments/systemd/` do the same and restart what dies.
"""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import tzlocal
from sqlalchemy import make_url

from headway.clock import Clock
from headway.errors import HeadwayError, SiteRefused, SiteUnreachable
from headway.home import settle
from headway.ledger import Ledger
from headway.node.daemon import Daemon, server_daemon, worker_daemon
from headway.prefect import auth
from headway.prefect.auth import auth_for, have_auth, keep_secret, site_auth
from headway.prefect.client import PrefectServer, checked_address
from headway.project import PACKAGE, PROJECT
from headway.settings import Settings
from headway.units import format_duration

_SERVER_START_S = 120.0
_WORKER_START_S = 60.0


class StartFailed(HeadwayError):
    """A process of the site did not come up; its log says why."""

    def __init__(self, what: str, log: Path, cause: str) -> None:
        self.what = what
        self.log = log
        self.cause = cause
        super().__init__(f"{what} did not start ({cause}); its last words are in {log}")


def site_environment(settings: Settings) -> dict[str, str]:
    """Environment of everything that belongs to the site on this machine."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    prefect = {
        "PREFECT_HOME": str(settings.home / "prefect"),
        "PREFECT_API_URL": settings.api_url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        # On SQLite, marking runs late locks the database for minutes (measured).
        "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
        "PREFECT_CLI_PROMPT": "false",
        # A page of another site may neither ask nor read; the UI asks where it came from,
        # by whichever of the machine's names that was.
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": settings.api_url.removesuffix("/api"),
        "PREFECT_UI_API_URL": "/api",
    }
    if settings.server_database_url is not None:
        prefect["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = _for_prefect(
            settings.server_database_url.get_secret_value()
        )
    if secret := site_auth(settings):
        prefect |= {auth.CLIENT: secret, auth.SERVER: secret}
    # The executables beside this Python come first: `prefect` must be the tested one.
    path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    modules = [str(PROJECT), *filter(None, [env.get("PYTHONPATH")])]  # flows, blocks
    site = {
        "HEADWAY_HOME": str(settings.home),
        "HEADWAY_PORT": str(settings.port),
        "HEADWAY_HOST": settings.host,
        "HEADWAY_NODE": settings.node,
        "HEADWAY_POOL": settings.pool,
        "HEADWAY_TIMEZONE": os.environ.get("HEADWAY_TIMEZONE") or tzlocal.get_localzone_name(),
    }
    return {**env, **prefect, **site, "PATH": path, "PYTHONPATH": os.pathsep.join(modules)}


def _for_prefect(url: str) -> str:
    """*url* with the driver that Prefect's server needs."""
    return make_url(url).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)


@contextmanager
def only_one(settings: Settings) -> Iterator[None]:
    """Hold the site's lock: two `headway up` at once start one server."""
    import fcntl  # noqa: PLC0415 - POSIX only, and only here

    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (settings.state_dir / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def start_server(settings: Settings, clock: Clock, say: Callable[[str], None]) -> bool:
    """Start the Prefect server unless it answers already; whether it was started.

    Raises:
        StartFailed: It ended, or does not answer within two minutes; or
            another program's server has the port.
    """
    daemon = server_daemon(settings)
    with PrefectServer(settings.api_url, auth=have_auth(settings), timeout_s=5.0) as server:
        if daemon.process() is not None and server.is_healthy():
            if server.accepts():
                return False
            say("the Prefect server does not ask for this site's auth string: restarting it …")
            worker_daemon(settings).stop(signal.SIGTERM, 10.0)  # it does not know it either
            daemon.stop(signal.SIGTERM, 20.0)
        if daemon.process() is None and _port_is_taken(settings):
            raise StartFailed(
                "the Prefect server",
                daemon.log,
                f"something else listens on {settings.host}:{settings.port}; "
                "set HEADWAY_PORT to another port",
            )
        say(f"starting the Prefect server at {settings.api_url.removesuffix('/api')} …")
        if daemon.process() is None:
            daemon.start(_server_command(settings), site_environment(settings))
        _await(daemon, "the Prefect server", server.is_healthy, _SERVER_START_S, clock)
    return True


def _server_command(settings: Settings) -> list[str]:
    command = ["prefect", "server", "start", "--host", settings.host]
    return _absolute([*command, "--port", str(settings.port)])


def start_worker(settings: Settings, clock: Clock, say: Callable[[str], None]) -> bool:
    """Start this node's worker unless it runs; whether it was started."""
    daemon = worker_daemon(settings)
    if daemon.process() is not None:
        return False
    say(f"starting the worker of node {settings.node} in pool {settings.pool} …")
    ready = settings.state_dir / "worker.ready"
    ready.unlink(missing_ok=True)
    daemon.start(_worker_command(settings), site_environment(settings))
    _await(daemon, "the worker", ready.exists, _WORKER_START_S, clock)
    return True


def register(settings: Settings, say: Callable[[str], None]) -> bool:
    """Register blocks and deployments with the server; False when nothing changed.

    The fingerprint of what was registered is kept, so that the second
    `headway up` takes no time for it.
    """
    env = site_environment(settings)
    mark = settings.state_dir / "registered"
    fingerprint = _fingerprint(env)
    if mark.exists() and mark.read_text() == fingerprint:
        return False
    say("registering blocks and deployments …")
    prefect = _absolute(["prefect", "--no-prompt"])
    pool = [*prefect, "work-pool", "create", settings.pool, "--type", "gpu-node", "--overwrite"]
    _run(pool, env, settings)
    deploy = [*prefect, "deploy", "--all", "--prefect-file", "deployments/prefect.yaml"]
    blocks = [sys.executable, "-m", "blocks.register"]
    children = [_spawn(deploy, env, settings), _spawn(blocks, env, settings)]
    for child in children:
        _finish(child, settings)
    mark.write_text(fingerprint)
    return True


def write_profile(settings: Settings, say: Callable[[str], None]) -> None:
    """Have plain `prefect …` find this site: a profile among those of whoever calls."""
    own = ("PREFECT_HOME", "PREFECT_PROFILES_PATH")
    env = {k: v for k, v in site_environment(settings).items() if not k.startswith("PREFECT_")}
    env |= {name: os.environ[name] for name in own if name in os.environ}
    try:
        _run([sys.executable, "-m", "blocks.profile"], env, settings)
    except StartFailed as error:  # the site itself does not need it
        say(f"no Prefect profile was written: {error}")


def prefect_command(settings: Settings) -> str:
    """What a person types for `prefect`, so that it finds this site."""
    note = settings.state_dir / "profile"
    return note.read_text().strip() if note.exists() else "prefect"


def join(
    settings: Settings,
    *,
    server_url: str,
    ledger_url: str,
    say: Callable[[str], None],
    ask: Callable[[], str] | None = None,
) -> None:
    """Note where the site's server and ledger are, and make this node's work pool there.

    Args:
        settings: This node's.
        server_url: The Prefect API.
        ledger_url: The ledger's database.
        say: Is told what happens.
        ask: Asks a person for the auth string; None where nobody is there.

    Raises:
        InvalidInput: *server_url* is no address.
        SiteUnreachable: No Prefect server answers there.
        SiteRefused: It asks for an auth string that was not given.
        LedgerUnreachable: No database answers at *ledger_url*.
    """
    server_url = checked_address("server", server_url)
    settle(settings.home)
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = _accepted_auth(settings, server_url, ask)
    with PrefectServer(server_url, auth=secret, timeout_s=10.0) as server:
        registered = server.has_deployment()
        Ledger.open(ledger_url).close()
        settings.server_pointer.write_text(server_url)
        keep_secret(settings.ledger_pointer, ledger_url)
        if secret:
            keep_secret(settings.auth_file, secret)
        say(f"joining {server_url.removesuffix('/api')} as node {settings.node} …")
        env = site_environment(settings)
        if not registered:
            register(settings, say)
            return
        pool = ["work-pool", "create", settings.pool, "--type", "gpu-node", "--overwrite"]
        _run([*_absolute(["prefect", "--no-prompt"]), *pool], env, settings)
        server.offer_in(settings.pool)


def _accepted_auth(
    settings: Settings, server_url: str, ask: Callable[[], str] | None
) -> str | None:
    """An auth string for the server: of the environment, of this home, or asked for."""
    given = os.environ.get(auth.CLIENT) or os.environ.get(auth.SERVER)
    secret = given or auth_for(settings, server_url)
    with PrefectServer(server_url, auth=secret, timeout_s=10.0) as server:
        if not server.is_healthy():
            raise SiteUnreachable(server_url, "no Prefect server answers there")
        try:
            server.has_deployment()
        except SiteRefused:
            if ask is None:
                raise
            return ask()
    return secret


def serve_site(settings: Settings) -> NoReturn:
    """Become this site's Prefect server: for systemd and containers."""
    have_auth(settings)
    os.chdir(PROJECT)
    command = _server_command(settings)
    os.execve(command[0], command, site_environment(settings))  # noqa: S606 - no shell, our own path


def serve(settings: Settings, say: Callable[[str], None]) -> NoReturn:
    """Join, then become this node's worker: for systemd and containers.

    Raises:
        SiteUnreachable: The server does not answer; whoever supervises tries again.
        LedgerUnreachable: The database does not.
    """
    join(settings, server_url=settings.api_url, ledger_url=settings.database_url, say=say)
    os.chdir(PROJECT)
    command = _worker_command(settings)
    os.execve(command[0], command, site_environment(settings))  # noqa: S606 - no shell, our own path


def _worker_command(settings: Settings) -> list[str]:
    command = ["prefect", "worker", "start", "--type", "gpu-node", "--pool", settings.pool]
    return _absolute([*command, "--name", settings.node])


def leave(settings: Settings) -> None:
    """Forget the server and ledger that this node joined."""
    if settings.server_pointer.exists():
        settings.auth_file.unlink(missing_ok=True)
    settings.server_pointer.unlink(missing_ok=True)
    settings.ledger_pointer.unlink(missing_ok=True)


def _absolute(command: list[str]) -> list[str]:
    return [str(Path(sys.executable).parent / command[0]), *command[1:]]


def _fingerprint(env: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    sources = [PROJECT / "deployments" / "prefect.yaml"]
    for folder in (PROJECT / "flows", PROJECT / "blocks", PACKAGE / "model"):
        sources += sorted(folder.glob("**/*.py"))
    for source in sources:
        digest.update(source.read_bytes())
    for key in (
        "HEADWAY_HOME",
        "HEADWAY_POOL",
        "HEADWAY_NODE",
        "HEADWAY_TIMEZONE",
        "PREFECT_API_URL",
        auth.CLIENT,
    ):
        digest.update(f"{key}={env.get(key)}\0".encode())
    digest.update(os.environ.get("PREFECT_HOME", str(Path.home())).encode())  # the profile's
    return digest.hexdigest()


def _spawn(
    command: list[str], env: Mapping[str, str], settings: Settings
) -> tuple[subprocess.Popen[bytes], str]:
    log = (settings.state_dir / "register.log").open("ab")
    child = subprocess.Popen(
        command,
        cwd=PROJECT,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    log.close()
    return child, " ".join(Path(part).name for part in command[:4])


def _finish(started: tuple[subprocess.Popen[bytes], str], settings: Settings) -> None:
    child, shown = started
    code = child.wait(180)
    if code != 0:
        log = settings.state_dir / "register.log"
        raise StartFailed(f"`{shown} …`", log, f"exit status {code}")


def _run(command: list[str], env: Mapping[str, str], settings: Settings) -> None:
    _finish(_spawn(command, env, settings), settings)


def _port_is_taken(settings: Settings) -> bool:
    import socket  # noqa: PLC0415 - only needed for this one question

    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((settings.host, settings.port)) == 0


def _await(
    daemon: Daemon, what: str, ready: Callable[[], bool], limit_s: float, clock: Clock
) -> None:
    end = clock.monotonic_s() + limit_s
    while not ready():
        if daemon.process() is None:
            raise StartFailed(what, daemon.log, "it ended")
        if clock.monotonic_s() > end:
            raise StartFailed(what, daemon.log, f"no answer within {format_duration(limit_s)}")
        clock.sleep(0.1)
