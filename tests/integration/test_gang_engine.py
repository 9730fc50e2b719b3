"""A job over two nodes in containers: they meet on the operator's network."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.integration.test_gang import MEET
from tests.support import mpi_image
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.prefect]


@pytest.fixture
def gang_network(docker_site: LiveSite) -> Iterator[str]:
    """A network of the engine that the operator has named for gangs."""
    client = docker.from_env()
    network = client.networks.create(f"headway-test-gangs-{os.getpid()}")
    try:
        docker_site.set_block("headway-container-policy", gang_network=network.name)
        yield str(network.name)
    finally:
        docker_site.set_block("headway-container-policy", gang_network="")
        network.remove()
        client.close()


@pytest.fixture(scope="module")
def second(docker_site: LiveSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """Another node of the site, which shares this machine's engine; it leaves at the end."""
    env = {"HEADWAY_NODE": "second", "PREFECT_API_AUTH_STRING": docker_site.auth()}
    node = LiveSite(tmp_path_factory.mktemp("nodes") / "second", "docker", docker_site.port, **env)
    ledger = docker_site.ledger_url()
    try:
        joined = node.run("node", "join", "--server", f"{docker_site.url}/api", "--ledger", ledger)
        assert joined.returncode == 0, joined.stderr + joined.stdout
        yield node
    finally:
        node.run("down", "--stop", "--yes")


def test_mpirun_starts_its_processes_in_the_containers_of_all_parts(
    docker_site: LiveSite, second: LiveSite, gang_network: str, tmp_path: Path
) -> None:
    if reason := mpi_image.why_none():
        pytest.skip(reason)
    run_id = docker_site.submit(
        tmp_path,
        name="summed",
        image=mpi_image.build_mpi_image(),
        command=["mpirun", "-n", "2", "python", "-c", mpi_image.SUM],
        launch="mpi",
        resources={"nodes": 2, "host_memory": "128MiB", "cpus": 0.2},
    )
    view = docker_site.until(run_id, "Completed", "Failed")
    said = docker_site.run("logs", run_id).stdout
    assert view["state"] == "Completed", f"{view}\n{said}"
    lines = sorted(line.split() for line in said.splitlines() if line.startswith("rank"))
    assert [line[:4] for line in lines] == [["rank", str(n), "has", "21"] for n in (0, 1)]
    assert lines[0][-1] != lines[1][-1]  # each in a container of its own
    (rank,) = view["ranks"]
    assert docker_site.until(rank["run_id"], "Completed")["exit"]["kind"] == "ok"
    wait_for(
        lambda: all(not node["runs"] for node in docker_site.json("nodes")),
        lambda: str(docker_site.json("nodes")),
    )


def test_containers_of_a_gang_meet_on_the_network_that_the_operator_named(
    docker_site: LiveSite, second: LiveSite, tmp_path: Path, request: pytest.FixtureRequest
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
    request.getfixturevalue("gang_network")
    run_id = docker_site.submit(tmp_path, **pair)
    view = docker_site.until(run_id, "Completed", "Failed")
    assert view["state"] == "Completed", view
    log = homes[view["node"]] / "runs" / run_id / "log/attempt-1.log"
    assert log.read_text() == "heard rank 1 of 2\n"
    wait_for(
        lambda: all(not node["runs"] for node in docker_site.json("nodes")),
        lambda: str(docker_site.json("nodes")),
    )
