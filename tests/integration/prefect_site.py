"""A real Prefect server and process workers, each its own process, for tests and benchmarks."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

FLOWS = Path(__file__).parent
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class PrefectSite:
    """One server on SQLite below *home*; workers and deployments are added by name."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{free_port()}/api"
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "HEADWAY"))},
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
            "PREFECT_CLI_PROMPT": "false",
            "DO_NOT_TRACK": "1",
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        port = self.url.split(":")[2].split("/")[0]
        self.server = self.run("server", "server", "start", "--host", "127.0.0.1", "--port", port)
        self.api = httpx.Client(base_url=self.url, timeout=30)

    def open(self) -> None:
        """Wait until the server answers."""
        self.wait(self._healthy, 90, "the server to answer")
        self.flow_id = self.post("/flows/", name="probe")["id"]

    def run(
        self, name: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `prefect …` in its own session; its output goes to `NAME.log`."""
        self.home.mkdir(exist_ok=True)
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *arguments],
                env=dict(env or self.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_worker(
        self, pool: str, *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process worker, which makes the pool where there is none yet."""
        arguments = ["worker", "start", "--pool", pool, "--type", "process", "--name", pool]
        worker = self.run(f"worker-{pool}", *arguments, env={**self.env, **(env or {})})
        self.wait(lambda: self._online(pool), 60, f"worker {pool}")
        return worker

    def deploy(
        self, name: str, pool: str, job_variables: Mapping[str, Any], flow: str = "probe.py:probe"
    ) -> str:
        """Make a deployment of *flow*, a file and function in this directory."""
        deployment = self.post(
            "/deployments/",
            name=name,
            flow_id=self.flow_id,
            work_pool_name=pool,
            entrypoint=flow,
            path=str(FLOWS),
            pull_steps=[
                {"prefect.deployments.steps.set_working_directory": {"directory": str(FLOWS)}}
            ],
            job_variables=dict(job_variables),
            enforce_parameter_schema=False,
        )
        return str(deployment["id"])

    def submit(self, deployment: str, **parameters: Any) -> str:
        run = self.post(
            f"/deployments/{deployment}/create_flow_run",
            parameters=parameters,
            state={"type": "SCHEDULED"},
        )
        return str(run["id"])

    def cancel(self, run: str) -> None:
        self.post(f"/flow_runs/{run}/set_state", state={"type": "CANCELLING"})

    def state(self, run: str) -> str:
        """Type of the run's state, such as ``RUNNING``."""
        return str(self.api.get(f"/flow_runs/{run}").raise_for_status().json()["state_type"])

    def wait_final(self, run: str, timeout_s: float = 60) -> str:
        self.wait(lambda: self.state(run) in FINAL, timeout_s, f"run {run} to end")
        return self.state(run)

    def states(self, run: str) -> list[dict[str, Any]]:
        """Every state the run had, oldest first."""
        answer = self.api.get("/flow_run_states/", params={"flow_run_id": run})
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return sorted(found, key=lambda state: str(state["timestamp"]))

    def logs(self, run: str) -> list[str]:
        found = self.post(
            "/logs/filter", logs={"flow_run_id": {"any_": [run]}}, sort="TIMESTAMP_ASC"
        )
        return [str(entry["message"]) for entry in found]

    def post(self, path: str, /, **body: Any) -> Any:
        for _ in range(5):
            answer = self.api.post(path, json=body)
            if answer.status_code != 503:  # SQLite is locked
                break
            time.sleep(0.5)
        return answer.raise_for_status().json()

    def wait(self, done: Any, timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                tail = "\n".join(p.read_text()[-1500:] for p in self.home.glob("*.log"))
                raise TimeoutError(f"waited {timeout_s} s for {what}\n{tail}")
            time.sleep(0.05)

    def close(self) -> None:
        """End every process of this site, with its session."""
        self.api.close()
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _healthy(self) -> bool:
        try:
            return self.api.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def _online(self, pool: str) -> bool:
        answer = self.api.post(f"/work_pools/{pool}/workers/filter", json={})
        return answer.status_code == 200 and any(w["status"] == "ONLINE" for w in answer.json())
