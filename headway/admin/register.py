"""What is registered with the Prefect server: work pool, deployments, blocks, and a profile."""

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from headway.admin.environment import site_environment
from headway.admin.processes import StartFailed
from headway.clock import SystemClock
from headway.durable import replace_file
from headway.node.daemon import Daemon
from headway.node.forkstart import running_server
from headway.prefect import auth
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.project import PACKAGE, PROJECT
from headway.settings import Settings
from headway.waits import until, waiting_for


def register(settings: Settings, say: Callable[[str], None]) -> bool:
    """Register blocks and deployments with the server; False when nothing changed.

    The fingerprint of what was registered is kept, so that the second
    `headway up` takes little time for it.
    """
    env = site_environment(settings)
    mark = settings.state_dir / "registered"
    fingerprint = _fingerprint(env)
    if mark.exists() and mark.read_text() == fingerprint and _is_all_there(settings):
        return False
    say("registering blocks and deployments …")
    _run(settings, env, "blocks.register")
    replace_file(mark, fingerprint)
    return True


def _is_all_there(settings: Settings) -> bool:
    with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
        return server.has_all(settings.node)


def make_pool(settings: Settings, env: Mapping[str, str]) -> None:
    """Have this node's work pool on the server that *env* names."""
    _run(settings, env, "blocks.register", "pool")


def write_profile(settings: Settings, say: Callable[[str], None]) -> None:
    """Have plain `prefect …` find this site: a profile among those of whoever calls."""
    own = ("PREFECT_HOME", "PREFECT_PROFILES_PATH")
    env = {k: v for k, v in site_environment(settings).items() if not k.startswith("PREFECT_")}
    env |= {name: os.environ[name] for name in own if name in os.environ}
    try:
        _run(settings, env, "blocks.profile")
    except StartFailed as error:  # the site itself does not need it
        say(f"no Prefect profile was written: {error}")


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


def _run(settings: Settings, env: Mapping[str, str], *module: str) -> None:
    """Run *module*, a name and its arguments, in a process; its output goes to a log.

    The fork server has imported Prefect, which takes longer than what is done with it.

    Raises:
        StartFailed: It did not make the file that says that it is done.
    """
    daemon = Daemon(module[0].rpartition(".")[2], settings.state_dir)
    done = settings.state_dir / f"{daemon.name}.done"
    daemon.stop(signal.SIGKILL, 0.0)  # one of an `up` that was broken off
    done.unlink(missing_ok=True)
    with waiting_for(f"`{' '.join(module)}`; see {daemon.log}"):
        if _is_ours(running_server(settings.state_dir)):
            daemon.start_python(module, env)
        else:  # of another installation, which an upgrade has left: it would register its own
            daemon.start([sys.executable, "-m", *module], env)
        until(lambda: daemon.process() is None, SystemClock(), _REGISTER_S, 0.05)
    daemon.stop(signal.SIGKILL, 0.0)
    if not done.exists():
        raise StartFailed(f"`{' '.join(module)}`", daemon.log, "it is not done")


def _is_ours(pid: int | None) -> bool:
    with suppress(psutil.NoSuchProcess):
        return pid is not None and psutil.Process(pid).cmdline()[:1] == [sys.executable]
    return False


_REGISTER_S = 180.0
