"""A job over two nodes in containers: they meet on the operator's network."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.integration.test_gang import MEET
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.prefect]


@pytest.fixture
def second(docker_site: LiveSite, tmp_path: Path) -> Iterator[LiveSite]:
    """Another node of the site, which shares this machine's engine; it leaves at the end."""
    env = {"HEADWAY_NODE": "second", "PREFECT_API_AUTH_STRING": docker_site.auth()}
    node = LiveSite(tmp_path / "second", "docker", docker_site.port, **env)
    ledger = docker_site.ledger_url()
    try:
        joined = node.run("node", "join", "--server", f"{docker_site.url}/api", "--ledger", ledger)
        assert joined.returncode == 0, joined.stderr + joined.stdout
        yield node
    finally:
        node.run("down")


def test_containers_of_a_gang_meet_on_the_network_that_the_operator_named(
    docker_site: LiveSite, second: LiveSite, tmp_path: Path
) -> None:
    pair = sleeper() | {
        "name": "pair",
        "command": ["python", "-c", MEET, "1"],
        "resources": {"nodes": 2, "host_memory": "64MiB", "cpus": 0.05},
    }
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(pair))
    refused = docker_site.run("submit", str(path))
    assert refused.returncode == 2
    assert "gang_network of the block headway-container-policy/site" in refused.stderr
    homes = {"test-node": docker_site.home, "second": second.home}
    client = docker.from_env()
    network = client.networks.create(f"headway-test-gangs-{os.getpid()}")
    try:
        docker_site.set_block("headway-container-policy", gang_network=network.name)
        run_id = docker_site.submit(tmp_path, **pair)
        view = docker_site.until(run_id, "Completed", "Failed")
        assert view["state"] == "Completed", view
        log = homes[view["node"]] / "runs" / run_id / "log/attempt-1.log"
        assert log.read_text() == "heard rank 1 of 2\n"
        wait_for(
            lambda: all(not node["runs"] for node in docker_site.json("node", "list")),
            lambda: str(docker_site.json("node", "list")),
        )
    finally:
        docker_site.set_block("headway-container-policy", gang_network="")
        network.remove()
        client.close()
