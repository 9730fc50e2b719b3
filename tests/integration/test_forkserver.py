"""Flow runs through the fork server, with a real Prefect server and a real process worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.node.flowrun import live_flow
from headway.node.forkstart import running_server, start_server, stub_command

from .prefect_site import PrefectSite

pytestmark = pytest.mark.prefect
ROOT = Path(__file__).parents[2]
PRELOAD = ["prefect.flow_engine", "prefect.task_engine", "prefect._internal.metrics", "site_code"]


class Site(PrefectSite):
    """A site whose worker starts flows through a fork server."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.code = home / "code"
        self.code.mkdir()
        self.write_code("one")
        self.env["PYTHONPATH"] = f"{self.code}{os.pathsep}{ROOT}"
        self.state_dir = home / "state"

    def open(self) -> None:
        super().open()
        self.start_server()
        self.start_worker("fork", env={"PREFECT_WORKER_QUERY_SECONDS": "0.5", "PROBE_MARKER": "w"})
        self.quiet = self.deploy("quiet", "fork", self.variables(stream_output=False))
        self.loud = self.deploy("loud", "fork", self.variables(stream_output=True))

    def variables(self, **more: Any) -> dict[str, Any]:
        return {"command": stub_command(self.state_dir), "working_dir": str(self.home), **more}

    def start_server(self) -> int:
        env = {**self.env, "SERVER_ONLY": "1", "PREFECT_LOGGING_LEVEL": "ERROR"}
        return start_server(self.state_dir, PRELOAD, env)

    def write_code(self, version: str) -> None:
        (self.code / "site_code.py").write_text(f"VERSION = {version!r}\n")

    def report(self) -> Path:
        return self.home / f"report-{time.monotonic_ns()}"

    def wait_event(self, report: Path, event: str) -> dict[str, Any]:
        self.wait(lambda: event in events(report), 40, f"{event} in {report}")
        return events(report)[event]


def events(report: Path) -> dict[str, dict[str, Any]]:
    if not report.exists():
        return {}
    notes = [json.loads(line) for line in report.read_text().splitlines()]
    return {note["event"]: note for note in notes}


def stub_of(state_dir: Path) -> psutil.Process:
    """The one stub that is running: a process of the worker, not the flow process."""
    marks = {"-S", str(state_dir)}
    processes = psutil.process_iter(["cmdline"])
    [stub] = [p for p in processes if marks <= set(p.info["cmdline"] or [])]
    return stub


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    try:
        site.open()
        yield site
    finally:
        site.close()
        if (pid := running_server(site.state_dir)) is not None:
            os.kill(pid, signal.SIGTERM)


def test_a_run_completes_in_a_process_like_a_fresh_one(site: Site) -> None:
    report = site.report()
    run = site.submit(site.loud, report=str(report))
    assert site.wait_final(run) == "COMPLETED"
    body = events(report)["body"]
    assert body["pid"] == body["session"]
    assert body["marker"] == "w"
    assert body["flow_run"] == run
    assert body["sigint"]
    assert body["server_settings"] is None
    assert body["level"] == "INFO"
    site.wait(lambda: live_flow(site.state_dir, run) is None, 30, "the flow process to end")
    site.wait(lambda: any("hello" in line for line in site.logs(run)), 10, "the log line")


def test_cancel_reaches_the_flow_as_an_intent_and_finally_runs(site: Site) -> None:
    report = site.report()
    run = site.submit(site.quiet, report=str(report), seconds=60)
    pid = site.wait_event(report, "body")["pid"]
    assert live_flow(site.state_dir, run) == pid
    site.cancel(run)
    assert site.wait_final(run) == "CANCELLED"
    assert events(report)["finally"]["intent"] == "cancel"
    assert "slept" not in events(report)
    assert not psutil.pid_exists(pid)


def test_a_failing_flow_is_failed_not_crashed(site: Site) -> None:
    run = site.submit(site.quiet, report=str(site.report()), fail=True)
    assert site.wait_final(run) == "FAILED"


def test_a_killed_flow_process_is_crashed(site: Site) -> None:
    report = site.report()
    run = site.submit(site.quiet, report=str(report), seconds=60)
    os.kill(site.wait_event(report, "body")["pid"], signal.SIGKILL)
    assert site.wait_final(run) == "CRASHED"
    assert "-9" in site.states(run)[-1]["message"]


def test_a_killed_stub_leaves_the_flow_running(site: Site) -> None:
    report = site.report()
    run = site.submit(site.quiet, report=str(report), seconds=4)
    pid = site.wait_event(report, "body")["pid"]
    stub_of(site.state_dir).kill()
    time.sleep(1)
    assert live_flow(site.state_dir, run) == pid
    site.wait_event(report, "slept")


def test_a_flow_that_ignores_cancel_dies_with_its_stub(site: Site) -> None:
    report = site.report()
    run = site.submit(site.quiet, report=str(report), seconds=60, stubborn=True)
    pid = site.wait_event(report, "body")["pid"]
    site.cancel(run)
    # Prefect's patience is 30 s; this is what it does then, sooner.
    site.wait_event(report, "ignored")
    stub_of(site.state_dir).kill()
    site.wait(lambda: not psutil.pid_exists(pid), 20, "the flow process to be killed")
    assert site.wait_final(run) == "CANCELLED"


def test_two_runs_at_once(site: Site) -> None:
    reports = [site.report(), site.report()]
    runs = [site.submit(site.quiet, report=str(report), seconds=2) for report in reports]
    bodies = [site.wait_event(report, "body") for report in reports]
    assert bodies[0]["pid"] != bodies[1]["pid"]
    assert [site.wait_final(run) for run in runs] == ["COMPLETED", "COMPLETED"]


def test_a_run_outlives_the_server_and_the_next_one_starts_without(site: Site) -> None:
    first, second = site.report(), site.report()
    run = site.submit(site.quiet, report=str(first), seconds=3)
    site.wait_event(first, "body")
    server = running_server(site.state_dir)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    other = site.submit(site.quiet, report=str(second))
    assert site.wait_final(other) == "COMPLETED"
    assert site.wait_final(run) == "COMPLETED"
    assert "slept" in events(first)
    assert site.start_server() != server


def test_changed_code_is_seen_by_the_next_run(site: Site) -> None:
    site.start_server()
    before, after = site.report(), site.report()
    assert site.wait_final(site.submit(site.quiet, report=str(before))) == "COMPLETED"
    old = running_server(site.state_dir)
    site.write_code("two")
    assert site.wait_final(site.submit(site.quiet, report=str(after))) == "COMPLETED"
    assert events(before)["body"]["code"] == "one"
    assert events(after)["body"]["code"] == "two"
    assert running_server(site.state_dir) not in {old, None}


def test_what_the_worker_preloads_has_the_engines_client_and_leaves_no_thread() -> None:
    """Else each run imports for itself, which takes it longer to start."""
    from headway.worker.flow_process import PRELOAD, PRELOAD_ENV

    program = f"import os, sys\nfor name in {PRELOAD!r}: __import__(name)\n"
    program += "print(len(os.listdir('/proc/self/task')), 'docker' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=PRELOAD_ENV, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "True"]
