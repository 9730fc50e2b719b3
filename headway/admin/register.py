"""What is registered with the Prefect server: work pool, deployments, blocks, and a profile."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from headway.admin.environment import beside_python, site_environment
from headway.admin.processes import StartFailed
from headway.durable import replace_file
from headway.prefect import auth
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.project import PACKAGE, PROJECT
from headway.settings import Settings


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
    make_pool(settings, env)
    deploy = _prefect("deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    _run_all(settings, env, deploy, [sys.executable, "-m", "blocks.register"])
    replace_file(mark, fingerprint)
    return True


def _is_all_there(settings: Settings) -> bool:
    with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
        return server.has_all(settings.node)


def make_pool(settings: Settings, env: Mapping[str, str]) -> None:
    """Have this node's work pool on the server that *env* names."""
    pool = _prefect("work-pool", "create", settings.pool, "--type", "gpu-node", "--overwrite")
    _run_all(settings, env, pool)


def write_profile(settings: Settings, say: Callable[[str], None]) -> None:
    """Have plain `prefect …` find this site: a profile among those of whoever calls."""
    own = ("PREFECT_HOME", "PREFECT_PROFILES_PATH")
    env = {k: v for k, v in site_environment(settings).items() if not k.startswith("PREFECT_")}
    env |= {name: os.environ[name] for name in own if name in os.environ}
    try:
        _run_all(settings, env, [sys.executable, "-m", "blocks.profile"])
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


def _prefect(*words: str) -> list[str]:
    return beside_python(["prefect", "--no-prompt", *words])


def _run_all(settings: Settings, env: Mapping[str, str], *commands: list[str]) -> None:
    """Run *commands* side by side; their output goes to one log.

    Raises:
        StartFailed: One of them did not succeed.
    """
    log = settings.state_dir / "register.log"
    with log.open("ab") as output:
        children = [
            subprocess.Popen(
                command,
                cwd=PROJECT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for command in commands
        ]
    for command, child in zip(commands, children, strict=True):
        if (code := child.wait(_REGISTER_S)) != 0:
            shown = " ".join(Path(word).name for word in command[:4])
            raise StartFailed(f"`{shown} …`", log, f"exit status {code}")


_REGISTER_S = 180.0
