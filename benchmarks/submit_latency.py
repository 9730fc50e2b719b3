"""How long from submitting a job to the first line its container prints.

headway beside a stock Prefect `process` worker with its default settings, on
one Prefect server, taking turns, each starting the same container; and below
both the floor, the bare start of that container. The time of the first line is
taken inside the container. headway is used through its public commands only.

    python benchmarks/submit_latency.py [--runs 7] [--with-slurm] [--json FILE]
"""

import argparse
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from headway.prefect.client import PrefectServer

ROOT = Path(__file__).resolve().parents[1]
HEADWAY = str(Path(sys.executable).with_name("headway"))
IMAGE = "headway-samples:local"
TELL = ["python", "-c", "import time; print('first line at', time.time(), flush=True)"]
FIRST_LINE = re.compile(r"first line at (\d+\.\d+)")
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Site:
    """A headway site of its own in *home*, and the client for its Prefect server."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "HEADWAY"))}
        self.env = {
            **clean,
            "HEADWAY_HOME": str(home),
            "HEADWAY_PORT": str(port),
            "PREFECT_HOME": str(home / "profiles"),
        }
        self.url = f"http://127.0.0.1:{port}/api"
        self.api: PrefectServer | None = None  # before the site is up it has no auth string

    def headway(self, *arguments: str) -> str:
        """Run a headway command; what it prints."""
        command = [HEADWAY, *arguments]
        done = subprocess.run(
            command, env=self.env, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def auth(self) -> str:
        """The site's auth string."""
        return (self.home / "auth").read_text().strip()

    def post(self, path: str, /, **body: Any) -> Any:
        """POST to the API."""
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask the API, which may be busy for a moment."""
        if self.api is None:
            self.api = PrefectServer(self.url, auth=self.auth(), timeout_s=60.0)
        return self.api._call(method, path, body)  # noqa: SLF001 - what no command asks

    def submit(self, deployment: str, **parameters: Any) -> tuple[str, float]:
        """Create a run; its id, and the time just before."""
        path = f"/deployments/{deployment}/create_flow_run"
        began = time.time()
        run = self.post(path, parameters=parameters, state={"type": "SCHEDULED"})
        return run["id"], began

    def finish(self, run: str) -> None:
        """Wait for the end of *run*, which must be Completed."""
        deadline = time.monotonic() + 120
        state: dict[str, Any] = {}
        while state.get("type") not in FINAL and time.monotonic() < deadline:
            time.sleep(0.2)
            state = self.call("GET", f"/flow_runs/{run}")["state"]
        if state["type"] != "COMPLETED":
            raise SystemExit(f"run {run} is {state['name']}: {state['message']}")


def online(site: Site) -> Any:
    """What the server says of the stock worker; nothing before its pool is there."""
    try:
        return site.post("/work_pools/stock/workers/filter")
    except LookupError:
        return None


@contextmanager
def stock_worker(site: Site) -> Iterator[tuple[int, str]]:
    """A default process worker on the same server; its pid, its deployment's id."""
    prefect = {
        "PREFECT_API_URL": site.url,
        "PREFECT_API_AUTH_STRING": site.auth(),
        "PREFECT_HOME": str(site.home / "stock"),
        "DO_NOT_TRACK": "1",
    }
    command = [str(Path(sys.executable).with_name("prefect")), "worker", "start"]
    command += ["--pool", "stock", "--type", "process", "--name", "stock"]
    with (site.home / "stock.log").open("wb") as log:
        # Without HEADWAY_HOME, so that it does not count as part of the site.
        env = {k: v for k, v in site.env.items() if not k.startswith("HEADWAY")}
        worker = subprocess.Popen(command, env=env | prefect, stdout=log, stderr=log)
    try:
        while "ONLINE" not in str(online(site)):
            if worker.poll() is not None:
                raise SystemExit(f"the stock worker ended: {site.home / 'stock.log'}")
            time.sleep(0.2)
        flow = site.post("/flows/", name="stock")
        deployment = site.post(
            "/deployments/",
            name="stock",
            flow_id=flow["id"],
            work_pool_name="stock",
            entrypoint="benchmarks/stock_flow.py:stock",
            path=str(ROOT),
            pull_steps=[
                {"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}
            ],
        )
        yield worker.pid, deployment["id"]
    finally:
        worker.kill()  # told to end, it waits for what it does last, now and then for minutes
        worker.wait()


def first_line_s(text: str, began: float) -> float:
    """Seconds from *began* to the line in *text* that says when it was printed."""
    found = FIRST_LINE.search(text)
    if found is None:
        raise SystemExit(f"the container printed no first line, but:\n{text}")
    return float(found[1]) - began


def through_headway(site: Site) -> Callable[[], float]:
    """One job through `train/default`."""
    deployment = site.call("GET", "/deployments/name/train/default")["id"]
    job = {"name": "bench", "image": IMAGE, "command": TELL, "resources": {"host_memory": "256MiB"}}

    def once() -> float:
        run, began = site.submit(deployment, job=job)
        site.finish(run)
        return first_line_s(site.headway("logs", run), began)

    return once


def through_stock(site: Site, deployment: str, command: list[str]) -> Callable[[], float]:
    """The same container, started by a plain flow on the stock worker."""

    def once() -> float:
        report = site.home / "stock-report"
        run, began = site.submit(deployment, command=command, report=str(report))
        site.finish(run)
        return first_line_s(report.read_text(), began)

    return once


def through_slurm(site: Site, command: list[str]) -> Callable[[], float]:
    """The same container, started by a batch job."""

    def once() -> float:
        report = site.home / "slurm-report"
        script = subprocess.list2cmdline(command)
        began = time.time()
        subprocess.run(["sbatch", "--wait", f"--output={report}", f"--wrap={script}"], check=True)
        return first_line_s(report.read_text(), began)

    return once


def bare(command: list[str]) -> float:
    """The floor: start it by hand."""
    began = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return first_line_s(done.stdout, began)


def help_s() -> float:
    """What `headway --help` takes."""
    began = time.perf_counter()
    subprocess.run([HEADWAY, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def memory_mib(pids: list[int]) -> float:
    """Proportional set size: pages shared by forked processes count once."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / 2**20


def site_pids(home: Path) -> list[int]:
    """Every process of the site, told by its environment."""
    pids = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HEADWAY_HOME") == str(home):
                pids.append(process.pid)
        except psutil.Error:
            continue
    return pids


def measure(runs: int, *, with_slurm: bool) -> dict[str, Any]:
    """Every figure of the report; latencies as lists of seconds."""
    engine = (
        shutil.which("docker")
        and not subprocess.run(
            ["docker", "image", "inspect", IMAGE], capture_output=True, check=False
        ).returncode
    )
    command = ["docker", "run", "--rm", IMAGE, *TELL] if engine else [sys.executable, *TELL[1:]]
    home = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    site = Site(home)
    try:
        site.headway("up")
        with stock_worker(site) as (stock_pid, deployment):
            time.sleep(5)  # idle
            memory = {
                "site": memory_mib(site_pids(home)),
                "stock worker": memory_mib([stock_pid]),
            }
            ways = {
                "floor": lambda: bare(command),
                "headway": through_headway(site),
                "stock": through_stock(site, deployment, command),
            }
            if with_slurm:
                ways["slurm"] = through_slurm(site, command)
            latency: dict[str, list[float]] = {way: [] for way in ways}
            jitter = random.Random(0)  # polls must not be met at one phase
            for turn in range(runs + 1):
                for way, once in ways.items():
                    time.sleep(jitter.uniform(0, 5))
                    taken = once()
                    print(f"{turn or 'warm-up'} {way}: {taken:.2f} s", file=sys.stderr)
                    if turn:
                        latency[way].append(taken)
    finally:
        site.headway("down", "--stop", "--yes")
        shutil.rmtree(home, ignore_errors=True)
    return {
        "container": bool(engine),
        "latency_s": latency,
        "memory_mib": memory,
        "help_s": [help_s() for _ in range(5)],
    }


def report(found: dict[str, Any]) -> None:
    """Print the table."""
    what = "container" if found["container"] else "process (no engine answers)"
    table = Table(title=f"submit → first line of the same {what}, seconds")
    for column in ("way", "runs", "min", "median", "max", "headway is faster by"):
        table.add_column(column, justify="left" if column == "way" else "right")
    own = statistics.median(found["latency_s"]["headway"])
    names = {
        "floor": "bare start, nothing before it",
        "headway": "headway",
        "stock": "stock Prefect process worker",
        "slurm": "Slurm (sbatch)",
    }
    for way, taken in found["latency_s"].items():
        middle = statistics.median(taken)
        ratio = "" if way in {"floor", "headway"} else f"{middle / own:.1f} ×"
        figures = [f"{value:.2f}" for value in (min(taken), middle, max(taken))]
        table.add_row(names[way], str(len(taken)), *figures, ratio)
    console = Console()
    console.print(table)
    memory = found["memory_mib"]
    console.print(
        f"idle: whole headway site {memory['site']:.0f} MiB (server, worker, fork server); "
        f"a stock worker alone {memory['stock worker']:.0f} MiB (PSS)"
    )
    console.print(f"headway --help: {statistics.median(found['help_s']):.2f} s")


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--with-slurm", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.with_slurm and shutil.which("sbatch") is None:
        raise SystemExit("--with-slurm: sbatch is not installed here")
    found = measure(options.runs, with_slurm=options.with_slurm)
    report(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
