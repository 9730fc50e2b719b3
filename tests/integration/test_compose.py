"""Server, guard and node of deployments/compose.yaml, with what it gives them, as processes."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from ruamel.yaml import YAML

from tests.support.postgresql import new_database
from tests.support.site import BIN, ROOT, LiveSite, free_port, wait_for

pytestmark = [pytest.mark.postgresql, pytest.mark.prefect]


def service(compose: dict[str, Any], name: str, put: dict[str, str]) -> dict[str, str]:
    """The environment of a service, its variables and the names of hosts put in."""
    found: dict[str, str] = compose["services"][name]["environment"]
    for old, new in put.items():
        found = {key: value.replace(old, new) for key, value in found.items()}
    return found


def test_what_compose_starts_is_a_site_with_a_node(postgresql: str, tmp_path: Path) -> None:
    compose = YAML(typ="safe").load((ROOT / "deployments/compose.yaml").read_text())
    port = free_port()
    of_headway = "postgresql://headway:${LEDGER_PASSWORD}@"
    of_a_node = "postgresql://${LEDGER_USER:-headway}:${LEDGER_PASSWORD}@"
    put = {
        f"{of_headway}ledger/prefect": new_database(postgresql),
        f"{of_a_node}${{HEAD:-127.0.0.1}}/headway": new_database(postgresql),
        "${HEAD:-127.0.0.1}:4200": f"127.0.0.1:{port}",
        "${SECRET:?set it}": "headway:shipped",
        "${SECRET}": "headway:shipped",
        "${NODE:-node-1}": "node-1",
        "${POOL:-gpu}": "gpu",
        "${TRUSTED_NETWORKS:-127.0.0.0/8}": "127.0.0.0/8",
        "${GATEWAY_HOST:-127.0.0.1}": "127.0.0.1",
    }
    started: list[subprocess.Popen[bytes]] = []
    homes = {name: tmp_path / name for name in ("server", "node")}
    homes["guard"] = homes["gateway"] = homes["scheduler"] = homes["node"]
    gateway_port = str(free_port())
    env = {
        name: service(compose, name, put)
        | {"HEADWAY_HOME": str(home), "HEADWAY_GATEWAY_PORT": gateway_port}
        for name, home in homes.items()
    }
    sites = {name: LiveSite(homes[name], "process", port, **env[name]) for name in homes}
    node = sites["node"]
    try:
        for name in ("server", "guard", "gateway", "scheduler", "node"):
            home = homes[name]
            home.mkdir(mode=0o700, exist_ok=True)
            program, *words = compose["services"][name]["command"]
            # As `restart: unless-stopped` would, until the server answers.
            again = ["/bin/sh", "-c", 'until "$@"; do sleep 3; done', "sh", BIN / program, *words]
            with (home / f"{name}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        again, env=sites[name].env, cwd=ROOT, stdout=log, stderr=log,
                        start_new_session=True,
                    )
                )  # fmt: skip
        ready = homes["node"] / "state/worker.ready"
        wait_for(ready.exists, lambda: logs(tmp_path))
        assert node.auth() == sites["server"].auth() == "headway:shipped"
        run_id = node.submit(tmp_path)
        assert node.until(run_id, "Completed", "Failed")["node"] == "node-1"
        record = json.loads((node.home / "state/guard.json").read_text())
        of_its_service = psutil.Process(started[1].pid).children(recursive=True)
        assert record["pid"] in [each.pid for each in of_its_service]
    finally:
        node.run("down", "--stop", "--yes")
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in folder.glob("*/*.log"))
