"""A whole site for a test: its own home, its own port, driven through public commands.

A command runs within the test's own process, through click's test runner: its start alone takes
0.7 s of a core, and a test that waits asks five times a second. Commands that start processes,
and tests about the process itself, start it (`OF_ITS_OWN`, `LiveSite.command`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from click.testing import CliRunner
from sqlalchemy import text

from headway.cli.main import headway
from headway.ledger import Ledger
from headway.ledger.database import open_engine
from headway.policy.settings import LINE
from headway.prefect.client import PrefectServer
from headway.site import POLICY, current_site

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PATIENCE_S = 300.0
"""How long a test waits for what has to come; a guard, no promise: the machine may be busy."""
SLEEPER = """\
import json, sys, time
for i in range(int(sys.argv[1])):
    print(json.dumps({"headway": {"iteration": i + 1, "total": int(sys.argv[1])}}), flush=True)
    time.sleep(0.25)
"""
ONE_THREAD = "OPENBLAS_NUM_THREADS"
"""Set for the tests' own processes (`conftest`), and not for a site: its users have not set it."""
DAEMONS = ("supervisor", "gateway", "guard", "server", "scheduler", "worker", "database")
"""The processes of a site of one node."""
_KEPT_AS = {"headway-line": LINE, "headway-container-policy": POLICY}
"""Names under which the ledger keeps what an operator sets in a block of the site."""
OF_ITS_OWN = (("up",), ("demo",), ("serve",), ("node", "join"), ("doctor",))
"""Commands that get a process of their own, since they start others, or load NVML: a process keeps
the first library that it loads, and that of the tests may have been another test's stub."""


class LiveSite:
    """Commands and looks at one site."""

    def __init__(self, home: Path, runtime: str, port: int, **more: str) -> None:
        self.home = home
        self.port = port
        not_its = ("PREFECT", "HEADWAY", ONE_THREAD)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(not_its)}
        self.env = clean | {
            "HEADWAY_HOME": str(home),
            "HEADWAY_PORT": str(port),
            "HEADWAY_GATEWAY_PORT": str(free_port()),
            "HEADWAY_SESSIONS_PORT": str(free_port()),
            "XDG_CONFIG_HOME": str(home / "config"),  # where nobody has logged in
            "HEADWAY_RUNTIME": runtime,
            "HEADWAY_NODE": "test-node",
            "PREFECT_HOME": str(home / "p"),  # whose profiles `up` writes
            **more,
        }
        self.url = f"http://{more.get('HEADWAY_HOST', '127.0.0.1')}:{port}"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`headway ARGUMENTS`, whatever becomes of it."""
        if any(arguments[: len(words)] == words for words in OF_ITS_OWN):
            return self.command([], arguments)
        return within_this_process(arguments, self.env)

    def command(
        self, before: Sequence[str], arguments: Sequence[str]
    ) -> subprocess.CompletedProcess[str]:
        """`headway ARGUMENTS` behind the words *before*."""
        return subprocess.run(
            [*before, BIN / "headway", *arguments],
            env=self.env, cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=2 * PATIENCE_S,
        )  # fmt: skip

    def json(self, *arguments: str) -> Any:
        """What `headway ARGUMENTS --json` prints."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        from benchmarks.answers import checked  # it uses this module itself

        return checked(arguments, done.stdout)

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`prefect ARGUMENTS`, which finds this site by its profile."""
        return subprocess.run(
            [BIN / "prefect", *arguments],
            env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def submit(self, folder: Path, **job: Any) -> str:
        """Submit a job as a file; the run's id."""
        path = folder / f"{job.get('name', 'job')}.json"
        path.write_text(json.dumps(sleeper() | job))
        run_id: str = self.json("submit", str(path))["run_id"]
        return run_id

    def start(self, deployment: str, **parameters: Any) -> str:
        """Start a run of a deployment as Prefect's UI and command do; its id."""
        found = self.call("GET", f"deployments/name/{deployment}")
        body = {"state": {"type": "SCHEDULED"}, "parameters": parameters}
        run: str = self.call("POST", f"deployments/{found['id']}/create_flow_run", body)["id"]
        return run

    def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until a run that the ledger does not know has ended; Prefect's state of it."""

        def state() -> dict[str, Any]:
            found: dict[str, Any] = self.call("GET", f"flow_runs/{run_id}")["state"]
            return found

        final = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
        wait_for(lambda: state()["type"] in final, lambda: f"{state()}\n{self.worker_log()}")
        return state()

    def show(self, run_id: str) -> dict[str, Any]:
        """`headway show`; before a worker has seen the run there is less in it."""
        view: dict[str, Any] = self.json("show", run_id)
        return view

    def until(self, run_id: str, *states: str) -> dict[str, Any]:
        """Wait until the run is in one of *states*; what it then shows.

        ``Running``: its program runs. Prefect says so as soon as the flow does.
        """
        with self.server() as server:  # to ask it is 50 times cheaper than `show`

            def seen() -> dict[str, Any] | None:
                if server.run(run_id).state_name not in states:
                    return None
                view = self.show(run_id)
                early = view["state"] == "Running" and view["started_at"] is None
                return view if view["state"] in states and not early else None

            return wait_for(
                seen,
                lambda: f"{run_id} is {self.show(run_id)}, not {states}\n{self.worker_log()}",
            )

    def until_training(self, run_id: str) -> dict[str, Any]:
        """Wait until the program has reported progress."""

        def reported() -> dict[str, Any] | None:
            view = self.until(run_id, "Running", "Completed", "Failed")
            return view if (view.get("progress") or {}).get("iteration") else None

        return wait_for(
            reported,
            lambda: f"{run_id} makes no progress: {self.show(run_id)}\n{self.worker_log()}",
        )

    def logged(self, run_id: str) -> list[str]:
        """What the run's page has of its log, oldest first."""
        asked = {"logs": {"flow_run_id": {"any_": [run_id]}}, "sort": "TIMESTAMP_ASC"}
        return [entry["message"] for entry in self._post("logs/filter", asked)]

    def artifacts(self, run_id: str) -> dict[str, Any]:
        """What the run's page shows beside its log: data by key, the newest of each."""
        asked = {"artifacts": {"flow_run_id": {"any_": [run_id]}}, "sort": "CREATED_DESC"}
        return {each["key"]: each["data"] for each in self._post("artifacts/filter", asked)[::-1]}

    def set_knobs(self, **knobs: Any) -> None:
        """Edit the block headway-line/site as an operator does, and wait until it holds."""
        self.set_block("headway-line", **knobs)

    def set_block(self, slug: str, **knobs: Any) -> None:
        """The same for the block *slug*/site."""
        block = self.call("GET", f"block_types/slug/{slug}/block_documents/name/site")
        body = {"data": knobs, "merge_existing_data": True}
        self.call("PATCH", f"block_documents/{block['id']}", body)
        # Not a line of the worker's log: that may be about the values of before.
        with closing(Ledger.open(self.ledger_url())) as ledger:
            wait_for(
                lambda: knobs.items() <= (ledger.settings.get(_KEPT_AS[slug]) or {}).items(),
                lambda: f"the worker did not read {knobs}: {self.worker_log()}",
            )

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask the site's Prefect API as somebody who may; what it answers."""
        with self.server() as server:
            return server._call(method, path, body)

    def server(self) -> PrefectServer:
        """The site's Prefect server, told its auth string."""
        return PrefectServer(f"{self.url}/api", auth=self.auth(), timeout_s=30.0)

    def ledger_url(self) -> str:
        """Address of the ledger in the PostgreSQL that the site started."""
        return (self.home / "database.url").read_text().strip()

    def count(self, sql: str, **values: object) -> int:
        """The number that *sql* counts in the ledger."""
        engine = open_engine(self.ledger_url())
        try:
            with engine.connect() as connection:
                return int(connection.execute(text(sql), values).scalar_one())
        finally:
            engine.dispose()

    def at_the_gateway(self) -> dict[str, str]:
        """The variables by which its operator comes in from elsewhere."""
        url = f"http://127.0.0.1:{self.env['HEADWAY_GATEWAY_PORT']}"
        return {"HEADWAY_URL": url, "HEADWAY_TOKEN": (self.home / "token").read_text().strip()}

    def auth(self) -> str:
        """The site's auth string."""
        return (self.home / "auth").read_text().strip()

    def pids(self) -> dict[str, int]:
        """Pids of what runs, or ran last, on this site's node, by its name."""
        found = {}
        for name in DAEMONS:
            with suppress(FileNotFoundError):
                record = self.home / f"state/{name}.json"
                found[name] = int(json.loads(record.read_text())["pid"])
        return found

    def worker_pid(self) -> int:
        """Pid of the site's worker."""
        return self.pids()["worker"]

    def flow_pid(self, run_id: str) -> int:
        """Pid of the run's flow process."""
        return int((self.home / "state/flows" / f"{run_id}.lock").read_text().split()[0])

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a process of this site and, for SIGKILL, wait until it is gone."""
        os.kill(pid, number)
        if number is signal.SIGKILL:
            wait_for(lambda: not _lives(pid), lambda: f"{pid} still lives")

    def worker_log(self) -> str:
        """The ends of the worker's and the scheduler's log, for messages of failed tests."""
        paths = [self.home / f"state/{name}.log" for name in ("worker", "scheduler")]
        return "\n".join(path.read_text()[-3000:] for path in paths if path.exists())


def within_this_process(
    arguments: Sequence[str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`headway ARGUMENTS` with the environment *env*, as a process of its own would do it."""
    before = os.umask(0o022)
    forget_site()
    try:
        with mock.patch.dict(os.environ, env, clear=True):
            done = CliRunner().invoke(headway, arguments, prog_name="headway")
    finally:
        forget_site()
        os.umask(before)
    said = done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        said += "".join(traceback.format_exception(done.exception))
    return subprocess.CompletedProcess(list(arguments), done.exit_code, done.stdout, said)


def forget_site() -> None:
    """Let the next command of this process make its site anew; the last one's ledger is closed."""
    if current_site.cache_info().currsize and (ledger := vars(current_site()).get("ledger")):
        ledger.close()
    current_site.cache_clear()


def sleeper(steps: int = 4, **job: Any) -> dict[str, Any]:
    """A job that reports a step each quarter of a second and needs next to nothing."""
    return {
        "name": "sleeper",
        "image": "headway-test/python:local",
        "command": ["python", "-c", SLEEPER, str(steps)],
        "resources": {"host_memory": "256MiB", "cpus": 0.25},
    } | job


def wait_for(look: Callable[[], Any], complain: Callable[[], str]) -> Any:
    """Look until there is something to see; fails with what *complain* says."""
    end = time.monotonic() + PATIENCE_S
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(complain())
        time.sleep(0.2)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def processes_of(home: Path) -> list[psutil.Process]:
    """Whatever lives that belongs to the site of *home*: what it started, and programs of runs."""
    inside = f"{home}/"
    return [
        process
        for process in psutil.process_iter(["environ", "cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and process.pid != os.getpid()
        and any(
            text == str(home) or inside in text
            for text in (
                *(process.info["environ"] or {}).values(),
                *(process.info["cmdline"] or ()),
            )
        )
    ]


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def let_through(folder: Path) -> None:
    """Let others pass: behind a closed folder root's database would be elsewhere, and stay."""
    tops = {Path(tempfile.gettempdir()), Path("/srv")}
    if tops.isdisjoint(folder.parents):
        return
    for each in (folder, *folder.parents):
        if each in tops:
            return
        each.chmod(each.stat().st_mode | 0o111)


@contextmanager
def live_site(home: Path, runtime: str, **more: str) -> Iterator[LiveSite]:
    """Bring a site up, and take it down again whatever happens.

    Each site tests in this way that `down` ends the supervisor first, which would bring the
    others back, and leaves no process behind.
    """
    site = LiveSite(home, runtime, free_port(), **more)
    let_through(home.parent)
    try:
        started = site.run("up")
        assert started.returncode == 0, started.stderr + started.stdout
        yield site
    finally:
        pids = site.pids()
        ended = site.run("down", "--stop", "--yes")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert not [name for name, pid in pids.items() if _lives(pid)], ended.stdout
    wait_for(lambda: not processes_of(home), lambda: f"{processes_of(home)}: {ended.stdout}")
