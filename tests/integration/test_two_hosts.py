"""Two hosts, as two network namespaces: server and ledger on one, a node on the other."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import postgresql
from tests.support.postgresql import new_database
from tests.support.site import LiveSite, free_port, wait_for

pytestmark = [pytest.mark.postgresql, pytest.mark.prefect]

HERE, THERE, NETWORK = "10.77.31.1", "10.77.31.2", "10.77.31.0/24"
SPACE = f"headway-{os.getpid()}"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def second_host() -> Iterator[None]:
    """A namespace that reaches this one over a cable of its own and nothing else."""
    cable = f"hw{os.getpid() % 100000}"
    ip("netns", "add", SPACE)
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "cable", "netns", SPACE)
        ip("addr", "add", f"{HERE}/24", "dev", cable)
        ip("link", "set", cable, "up")
        inside = ("netns", "exec", SPACE, "ip")
        ip(*inside, "addr", "add", f"{THERE}/24", "dev", "cable")
        ip(*inside, "link", "set", "cable", "up")
        ip(*inside, "link", "set", "lo", "up")
        yield
    finally:
        ip("netns", "del", SPACE)


class FarSite(LiveSite):
    """A site whose commands run on the other host."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`headway ARGUMENTS` there."""
        return self.command(["ip", "netns", "exec", SPACE], arguments)


def test_a_run_goes_to_the_other_host(tmp_path) -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if reason := postgresql.why_none():
        pytest.skip(reason)
    with second_host(), postgresql.server(address=HERE, network=NETWORK) as server:
        ledger, own = new_database(server), new_database(server)
        port = free_port()
        near = LiveSite(
            tmp_path / "near", "process", port,
            HEADWAY_NODE="near", HEADWAY_HOST=HERE, HEADWAY_LEDGER_URL=ledger,
            HEADWAY_SERVER_DATABASE_URL=own, HEADWAY_TRUSTED_NETWORKS=NETWORK,
        )  # fmt: skip
        far = FarSite(tmp_path / "far", "process", port, HEADWAY_NODE="far")
        try:
            started = near.run("up")
            assert started.returncode == 0, started.stderr + started.stdout
            api = f"http://{HERE}:{port}/api"
            join = ("node", "join", "--server", api, "--ledger", ledger)
            refused = far.run(*join)
            assert refused.returncode == 2
            assert f'server: got "{HERE}"; auth strings' in refused.stderr
            assert not far.home.exists()
            far.env["HEADWAY_TRUSTED_NETWORKS"] = NETWORK
            refused = far.run(*join)
            assert refused.returncode == 3
            assert "give it as PREFECT_API_AUTH_STRING" in refused.stderr
            assert not (tmp_path / "far" / "server.url").exists()
            far.env["PREFECT_API_AUTH_STRING"] = near.auth()
            joined = far.run(*join)
            assert joined.returncode == 0, joined.stderr + joined.stdout
            del far.env["PREFECT_API_AUTH_STRING"]  # it is kept there
            assert (tmp_path / "far" / "auth").stat().st_mode & 0o077 == 0
            assert far.run("node", "list").returncode == 0
            wait_for(
                lambda: len(near.json("node", "list")) == 2,
                lambda: str(near.json("node", "list")) + far.worker_log(),
            )
            # Another pool's deployment does not exist, its own node's queue does.
            path = tmp_path / "job.json"
            program = "import socket; print([i[1] for i in socket.if_nameindex()])"
            path.write_text(
                '{"name": "far", "image": "i:1", "command": ["python", "-c", "' + program + '"], '
                '"resources": {"host_memory": "64MiB", "cpus": 0.1}}'
            )
            run_id = near.json("submit", str(path), "--node", "far")["run_id"]
            view = near.until(run_id, "Completed", "Failed")
            assert (view["state"], view["node"]) == ("Completed", "far"), view
            # It ran over there: its log is in the other host's home, its network the other's.
            assert "cable" in near.run("logs", run_id).stdout
        finally:
            far.run("down")
            near.run("down")
