"""A Ray of this machine alone, with two nodes and a pretended GPU each."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.slurm import free_port

_FOLDER = Path(sys.prefix) / "ray"
"""The environment that `make` makes for it: what it needs is not headway's to need."""
_START_S = 90.0
_FORBIDDEN = ("HEADWAY_", "PREFECT_")


class Ray:
    """A cluster; what its users do there is a method here."""

    def __init__(self) -> None:
        # Its sockets' paths are long.
        self._folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(_FORBIDDEN)}
        self._env |= {"RAY_USAGE_STATS_ENABLED": "0"}
        self._head, dashboard = f"127.0.0.1:{free_port()}", free_port()
        self.address = f"http://127.0.0.1:{dashboard}"
        self._http = httpx.Client(base_url=self.address, timeout=30.0)

    def start(self) -> None:
        """Start both nodes; both are there then."""
        port, dashboard = self._head.split(":")[1], self.address.rpartition(":")[2]
        self._start("--head", f"--port={port}", f"--dashboard-port={dashboard}",
                    f"--temp-dir={self._folder}", "--node-ip-address=127.0.0.1")  # fmt: skip
        self._until(1)
        self._start(f"--address={self._head}", "--node-ip-address=127.0.0.2")
        self._until(2)

    def _start(self, *options: str) -> None:
        size = ("--num-cpus=2", "--num-gpus=1", f"--memory={2**31}")
        least = ("--object-store-memory=80000000", "--disable-usage-stats", "--block")
        command = [_FOLDER / "bin/ray", "start", *options, *size, *least]
        log = (self._folder / "start.log").open("ab")
        with log:
            self._nodes.append(
                subprocess.Popen(
                    command, env=self._env, stdout=log, stderr=log, start_new_session=True
                )
            )

    def _until(self, nodes: int) -> None:
        give_up_s = time.monotonic() + _START_S
        while time.monotonic() < give_up_s:
            try:
                answer = self._http.get("/api/v0/nodes").json()
                if answer["data"]["result"]["total"] == nodes:
                    return
            except (httpx.HTTPError, ValueError, KeyError, TypeError):
                pass
            time.sleep(0.3)
        raise RuntimeError((self._folder / "start.log").read_text()[-2000:])

    def stop(self) -> None:
        """End what was started."""
        for node in reversed(self._nodes):
            node.send_signal(signal.SIGTERM)
        for node in self._nodes:
            try:
                node.wait(20.0)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)
                node.wait()
        self._http.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def cancel(self, engine_id: str) -> None:
        """End a job."""
        self._http.post(f"/api/jobs/{engine_id}/stop").raise_for_status()

    def forget_ended(self) -> None:
        """Know nothing more of those that have ended."""
        for job in self._jobs():
            if job["status"] in {"STOPPED", "SUCCEEDED", "FAILED"}:
                self._http.delete(f"/api/jobs/{job['submission_id']}")

    def end_all(self) -> None:
        """Let nothing be left."""
        left = [job for job in self._jobs() if job["status"] in {"PENDING", "RUNNING"}]
        for job in left:
            self.cancel(job["submission_id"])
        while any(job["status"] in {"PENDING", "RUNNING"} for job in self._jobs()):
            time.sleep(0.2)

    def _jobs(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self._http.get("/api/jobs/").json()
        return [job for job in found if job.get("submission_id")]


def two_ray_nodes() -> Iterator[Ray]:
    """For a fixture: a cluster; its tests are skipped where Ray is not installed."""
    if not (_FOLDER / "bin/ray").exists():
        pytest.skip("no Ray: installed with the next `make`, from its own lock file")
    ray = Ray()
    try:
        ray.start()
        yield ray
    finally:
        ray.stop()
