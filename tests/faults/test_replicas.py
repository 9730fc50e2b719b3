"""Two API processes behind a balancer, services apart, a Redis: each dies while runs come and go.

The units, the balancer's file and the settings are those of `deployments/` and of the page for
operators, at other ports.
"""

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headway.ledger import Ledger
from headway.model.run import ExitKind, RunState
from tests.support import postgresql
from tests.support.site import BIN, ROOT, LiveSite, free_port, let_through, sleeper, wait_for

PAGE = (ROOT / "docs/operating.md").read_text()
PART = PAGE.partition("## Several processes of Prefect's server")[2]
UNITS = ROOT / "deployments/systemd"
RUNS = 24


def why_none() -> str:
    """Why no such site can be had here; empty where it can."""
    if importlib.util.find_spec("prefect_redis") is None:
        return "prefect-redis is not installed (requirements-dev.lock has it)"
    missing = [name for name in ("redis-server", "haproxy") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (root on Debian: make replicas)"
    return postgresql.why_none()


pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(why_none()), reason=why_none())]


@dataclass
class Process:
    """One that systemd would start, and start again."""

    command: list[str]
    env: dict[str, str]
    log: Path
    running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command, env=self.env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self.running is not None
        self.running.send_signal(number)
        self.running.wait(30)


def unit(name: str, site: LiveSite, ports: dict[str, int], instance: str = "") -> Process:
    """What the unit *name* starts, its *instance* by the number that the documents give it."""
    text = (UNITS / name).read_text().replace("%i", instance)
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, *words = shlex.split(line)
    own = dict(
        each.split("=", 1)
        for given in re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
        for each in shlex.split(given)
    )
    own = {key: str(ports.get(each, each)) for key, each in own.items()}
    env = {key: each for key, each in site.env.items() if key not in own} | own
    log = site.home.parent / f"{name}{instance}.log"
    return Process([str(BIN / Path(program).name), *words], env, log)


@dataclass
class Replicas:
    """The site, and its processes by name."""

    site: LiveSite
    processes: dict[str, Process]

    def said(self) -> str:
        """The ends of their logs, for messages of failed tests."""
        ends = (f"== {name}\n{each.log.read_text()[-1500:]}" for name, each in self._logged())
        return "\n".join(ends) + self.site.worker_log()

    def _logged(self) -> list[tuple[str, Process]]:
        return [(name, each) for name, each in self.processes.items() if each.log.exists()]


@contextmanager
def replicas(folder: Path) -> Iterator[Replicas]:
    """The site as the page for operators sets it up."""
    let_through(folder)
    front, redis = free_port(), free_port()
    ports = {"4201": free_port(), "4202": free_port()}
    settings = dict(re.findall(r"^ {4}(HEADWAY_\w+)=(.*)$", PART, re.MULTILINE))
    settings = {
        key: each.replace("4200", str(front)).replace("6379", str(redis))
        for key, each in settings.items()
    }
    assert set(settings) == {"HEADWAY_SERVER_URL", "HEADWAY_REDIS_URL"}
    options = re.findall(r"`(requirepass|appendonly|maxmemory-policy) ([\w-]+)`", PART)
    assert len(options) == 3
    balancer = (ROOT / "deployments/haproxy.cfg").read_text()
    for given, port in ports.items():
        assert f"127.0.0.1:{given}" in balancer
        balancer = balancer.replace(given, str(port))
    (folder / "haproxy.cfg").write_text(balancer)
    (folder / "redis").mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(postgresql.server())
        site = LiveSite(
            folder / "home", "process", front, **settings,
            HEADWAY_LEDGER_URL=postgresql.new_database(server),
            HEADWAY_SERVER_DATABASE_URL=postgresql.new_database(server),
        )  # fmt: skip
        words = [word for name, given in options for word in (f"--{name}", given)]
        processes = {
            "redis": Process(
                ["redis-server", "--port", str(redis), "--dir", str(folder / "redis"), *words],
                dict(os.environ), folder / "redis.log",
            ),
            "haproxy": Process(
                ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")],
                os.environ | {"HEADWAY_HOST": "127.0.0.1", "HEADWAY_PORT": str(front)},
                folder / "haproxy.log",
            ),
            "first": unit("headway-api@.service", site, ports, "4201"),
            "second": unit("headway-api@.service", site, ports, "4202"),
            "services": unit("headway-services.service", site, ports),
            "worker": unit("headway-worker.service", site, ports),
            "gateway": unit("headway-gateway.service", site, ports),
        }  # fmt: skip
        made = Replicas(site, processes)
        for name, each in processes.items():
            if name == "worker":  # systemd would start it again until there is a server
                wait_for(lambda: healthy(site), made.said)
            if name == "gateway":  # the same, until there is a ledger
                wait_for((site.home / "state/worker.ready").exists, made.said)
            each.start()
            stack.callback(each.end)
        # First: the guard and the fork server, too.
        stack.callback(site.run, "down", "--stop", "--yes")
        yield made


def healthy(site: LiveSite) -> bool:
    if not (site.home / "auth").exists():
        return False
    with site.server() as server:
        return server.is_healthy()


def hand_in(site: LiveSite, count: int, handed: list[str]) -> None:
    """Submit runs one by one, as fast as the server takes them, whatever dies meanwhile."""
    job = sleeper(4, resources={"host_memory": "32MiB", "cpus": 0.1}, max_runtime="5m")
    with site.server() as server:
        for number in range(count):
            handed.append(
                server.submit({"job": job}, name=f"r-{number}", tags=[], key=f"k-{number}").run_id
            )


def started_runs(ledger: Ledger) -> set[str]:
    return {each.run_id for each in ledger.runs.all() if each.started_at is not None}


def test_whatever_process_of_the_server_dies_no_run_is_lost_and_none_starts_twice(tmp_path):
    with ExitStack() as stack:
        made = stack.enter_context(replicas(tmp_path))
        url = made.site.env["HEADWAY_LEDGER_URL"]
        ledger = stack.enter_context(closing(Ledger.open(url)))
        handed: list[str] = []
        load = threading.Thread(target=hand_in, args=(made.site, RUNS, handed))
        load.start()
        pauses = {}
        for name in ("first", "redis", "services", "second"):
            started = wait_for(lambda: started_runs(ledger), made.said)
            begun = time.monotonic()
            made.processes[name].end()
            if name == "redis":  # which everybody needs: away for long enough to be noticed
                time.sleep(5)
                made.processes[name].start()
            wait_for(lambda: started_runs(ledger) - started, made.said)  # noqa: B023
            pauses[name] = time.monotonic() - begun
            if name != "redis":
                made.processes[name].start()
        load.join()
        runs = wait_for(
            lambda: (
                (found := ledger.runs.all(limit=2 * RUNS))
                and all(each.state is RunState.ENDED for each in found)
                and len(found) == RUNS
                and found
            ),
            lambda: f"{Counter(each.state for each in ledger.runs.all())}\n{made.said()}",
        )
        print("seconds from the kill of each to the next start:")
        print({name: round(took, 1) for name, took in pauses.items()})
        assert sorted(handed) == sorted(each.run_id for each in runs)
        assert {each.exit.kind for each in runs} == {ExitKind.OK}, made.said()
        assert {each.attempt for each in runs} == {1}
        assert all(len(ledger.leases.every_of_run(each.run_id)) == 1 for each in runs)
        with made.site.server() as server:
            wait_for(
                lambda: (
                    {each.state_type for each in server.these(handed).values()} == {"COMPLETED"}
                ),
                lambda: f"{server.these(handed)}",
            )
            assert len(server.these(handed)) == RUNS
        # Redis has lost no stream: what happened since is told again.
        last = made.site.submit(tmp_path, name="last")
        made.site.until(last, "Completed")
        asked = {"filter": {"resource": {"id": [f"prefect.flow-run.{last}"]}}}
        wait_for(
            lambda: (
                "prefect.flow-run.Completed"
                in {
                    each["event"]
                    for each in made.site.call("POST", "events/filter", asked)["events"]
                }
            ),
            made.said,
        )
