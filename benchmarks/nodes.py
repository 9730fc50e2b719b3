"""What grows with the nodes of a site: a scheduler and N workers on real ledger and Prefect server.

    python benchmarks/nodes.py [--nodes 1 5 10 20 50] [--waiting 0] [--seconds 20] [--rounds 3]
                               [--statements 0]

Each worker is the real one, a process of its own with a home of its own; its runtime and its
sensors are the fakes of the tests, put in from here, and the steps of a run are the real ones. A
node has one GPU, and each run takes one for --seconds. Workers have the lowest priority, since they
stand for machines of their own: programs start late where all of them share few processors.

With --waiting so many runs wait from the begin, in the ledger and in Prefect, in the place of those
that are submitted: for one number of nodes, since they do not end.

Prints for each N, idle: queries a second of the ledger and of Prefect, processor time of a worker
and of the server, memory of a worker; and under load, N x rounds runs: what a run takes more, the
time of a worker's look at the queue, and the time from a lease's release to the next grant and
program start on that GPU. With --statements the ledger's most frequent statements, too; with
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
import psycopg  # noqa: E402
from sqlalchemy import func  # noqa: E402
from sqlmodel import col, select  # noqa: E402

from headway.admin.environment import site_environment  # noqa: E402
from headway.clock import SystemClock  # noqa: E402
from headway.errors import RunUnknown  # noqa: E402
from headway.ledger import Ledger  # noqa: E402
from headway.ledger.tables import AttemptRow, LeaseGpuRow, LeaseRow, RunRow  # noqa: E402
from headway.model.lease import Demand  # noqa: E402
from headway.model.node import GpuReading  # noqa: E402
from headway.model.run import ExitKind, RunState  # noqa: E402
from headway.prefect.client import PrefectServer  # noqa: E402
from headway.settings import Settings, read_settings  # noqa: E402
from headway.site import Site  # noqa: E402
from headway.units import GIB  # noqa: E402
from tests.ports.runtime import FakeMachine, FakeRuntime, Script  # noqa: E402
from tests.ports.telemetry import FakeGpus, FakeHost  # noqa: E402
from tests.support import postgresql  # noqa: E402
from tests.support.burst import cpu_s, lowest_priority  # noqa: E402
from tests.support.queued import fill_queue  # noqa: E402
from tests.support.site import BIN, LiveSite, free_port, let_through, wait_for  # noqa: E402

JOB = {
    "name": "bench",
    "image": "i:1",
    "command": ["x"],
    "max_runtime": "10m",
    "resources": {"gpus": 1, "gpu_memory": "1GiB", "sharing": "whole", "host_memory": "64MiB"},
}
SCHEDULER = "scheduler"
_SETTLED_S = 10.0


# -- a node: the real worker on a machine that is not there ---------------------------------


class FakeSite(Site):
    """A site whose node has a GPU, a host and an engine of the tests'."""

    @cached_property
    def runtime(self) -> FakeRuntime:
        """Programs that last as long as the benchmark says, and do nothing."""
        return FakeRuntime(self.site_id, self._runtime_policy(), self.clock, self.machine)

    @cached_property
    def machine(self) -> FakeMachine:
        """It stays when the runtime is built anew."""
        return FakeMachine(default=Script(runs_s=float(os.environ["BENCH_SECONDS"])))

    @cached_property
    def gpus(self) -> FakeGpus:
        """One."""
        reading = GpuReading(f"GPU-{self.settings.node}", 0, "NVIDIA A100", 80 * GIB, 0, 0.0)
        return FakeGpus(reading)

    @cached_property
    def host(self) -> FakeHost:
        """Larger than this machine."""
        return FakeHost(cpus=16.0, memory_bytes=64 * GIB)


class Silent:
    """Nobody is told."""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        """A piece of the log."""

    def watched(self, now: object) -> None:
        """How far the run is."""


def attempt(site: Site, run_id: str) -> None:
    """The five steps of a run, as its flow process makes them."""
    from headway.model.lease import Lease
    from headway.node.flowlock import hold_flow
    from headway.run.attempt import Attempt

    try:
        made = Attempt(site, run_id)
    except RunUnknown:  # of another flow, as those that Prefect starts by the clock
        return
    with hold_flow(site.settings.state_dir, run_id):
        with made.step("stage_data"):
            made.stage_data(lambda *_: None)
        with made.step("admit"):
            lease = made.admit()
        if not isinstance(lease, Lease):
            made.give_back(lease)
            return
        with made.step("train"):
            followed = made.train(lease, dict, Silent())
        with made.step("update_estimates"):
            made.settle(followed)
        with made.step("clean_up"):
            made.clean_up()


def be_node(name: str, scratch: Path) -> None:
    """Be the worker of one node, on a machine of its own as far as may be, until it is killed."""
    from concurrent.futures import ThreadPoolExecutor

    from prefect.client.orchestration import get_client
    from prefect.states import Completed, Running

    from headway.node.forkstart import Forked, Program
    from headway.node.sampler import Sampler
    from headway.worker import gpu_node

    lowest_priority()
    home = scratch / name
    os.environ |= {"HEADWAY_NODE": name, "HEADWAY_HOME": str(home)}
    site = FakeSite(read_settings(), SystemClock())
    programs = ThreadPoolExecutor(8)

    def begin(_: Path, program: Program) -> Forked:
        """In the place of a flow process: what it writes to the ledger, and to Prefect."""
        over = os.eventfd(0)
        programs.submit(flow, program.env["PREFECT__FLOW_RUN_ID"], over)
        return Forked(os.getpid(), os.dup(over))

    def flow(run_id: str, over: int) -> None:
        try:
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(UUID(run_id), Running(), force=True)
                attempt(site, run_id)
                client.set_flow_run_state(UUID(run_id), Completed(), force=True)
        except Exception:  # noqa: BLE001 - one run of many
            traceback.print_exc()
        finally:
            os.eventfd_write(over, 1)
            os.close(over)

    fakes = {
        "current_site": lambda _: site,
        "have_fork_server": lambda *_: None,
        "fork": begin,
        "status_of": lambda *_: 0,
    }
    for own, fake in fakes.items():
        setattr(gpu_node, own, fake)

    class FakeNode(gpu_node.GpuNodeWorker):
        type = "fake-gpu-node"

        def _open_site(self) -> None:
            super()._open_site()
            self._sampler = Sampler(site, site.host)

    worker = FakeNode(work_pool_name="gpu", name=name)
    asyncio.run(worker.start(printer=lambda *_: None))


def be_scheduler(scratch: Path) -> None:
    """Be the scheduler, until it is killed, and write down how long its passes take."""
    from headway.leader import process
    from headway.scheduler.queue import PoolQueue

    home = scratch / SCHEDULER
    os.environ |= {"HEADWAY_NODE": SCHEDULER, "HEADWAY_HOME": str(home)}
    looks: list[float] = []
    run_pass = PoolQueue.run_pass

    def timed(self: PoolQueue, *args: Any, **more: Any) -> Any:
        begun_s = time.perf_counter()
        try:
            return run_pass(self, *args, **more)
        finally:
            looks.append(time.perf_counter() - begun_s)

    def report() -> None:
        while True:
            time.sleep(1)
            (home / "looks.json").write_text(json.dumps(looks))

    PoolQueue.run_pass = timed  # type: ignore[method-assign]
    threading.Thread(target=report, daemon=True).start()
    process.main()


def be_zygote(scratch: Path) -> None:
    """Fork a node for each line that is read: they share what they import."""
    import headway.leader.process
    import headway.run.attempt
    import headway.worker.gpu_node  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        name = line.strip()
        pid = os.fork()
        if pid == 0:
            out = os.open(scratch / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            try:
                be_scheduler(scratch) if name == SCHEDULER else be_node(name, scratch)
            finally:
                os._exit(1)
        print(pid, flush=True)


# -- the site around them -------------------------------------------------------------------


@dataclass
class Bench:
    """The site under test."""

    head: LiveSite
    database: str
    server_database: str
    scratch: Path
    server: psutil.Process
    zygote: "subprocess.Popen[str]"
    ledger: Ledger

    def __post_init__(self) -> None:
        self.nodes: dict[str, psutil.Process] = {}
        self.scheduler = self._forked(SCHEDULER)

    def _forked(self, name: str) -> psutil.Process:
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        (self.scratch / name / "state").mkdir(parents=True, mode=0o700)
        self.zygote.stdin.write(f"{name}\n")
        self.zygote.stdin.flush()
        return psutil.Process(int(self.zygote.stdout.readline()))

    def grow(self, count: int) -> None:
        """Let there be *count* nodes, all of which have reported."""
        while len(self.nodes) < count:
            name = f"n{len(self.nodes):02}"
            self.nodes[name] = self._forked(name)
        wait_for(
            lambda: all((self.scratch / n / "state/worker.ready").exists() for n in self.nodes),
            lambda: (self.scratch / f"{name}.log").read_text()[-3000:],
        )

    def queries(self) -> tuple[int, int]:
        """Statements so far of the ledger's and of Prefect's database."""
        counted = "SELECT d.datname, sum(s.calls) FROM pg_stat_statements s JOIN pg_database d"
        with psycopg.connect(self.database, autocommit=True) as connection:
            rows = dict(connection.execute(f"{counted} ON d.oid = s.dbid GROUP BY 1").fetchall())
        names = (each.rsplit("/", 1)[1] for each in (self.database, self.server_database))
        ledger, prefect = (int(rows.get(name, 0)) for name in names)
        return ledger, prefect

    def statements(self, most: int) -> list[tuple[int, float, str]]:
        """Calls, milliseconds in all, and text of the ledger's most frequent ones."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT calls, total_exec_time, left(query, 150) FROM pg_stat_statements s"
                " JOIN pg_database d ON d.oid = s.dbid WHERE datname = current_database()"
                " ORDER BY total_exec_time DESC LIMIT %s",
                (most,),
            ).fetchall()
            connection.execute("SELECT pg_stat_statements_reset()")
        return [(int(a), float(b), str(c)) for a, b, c in rows]

    def used(self) -> "Used":
        """What was used so far."""
        return Used(
            time.monotonic(), *self.queries(), sum(cpu_s(each) for each in self.nodes.values()),
            cpu_s(self.scheduler), cpu_s(self.server), self._database_s(),
        )  # fmt: skip

    def _database_s(self) -> float:
        total_s = 0.0
        for each in psutil.process_iter(["name", "ppid", "cpu_times"]):
            if each.info["name"] == "postgres" and each.info["ppid"] in {self._main, 1}:
                total_s += sum(each.info["cpu_times"][:4])
        return total_s

    @cached_property
    def _main(self) -> int:
        with psycopg.connect(self.database) as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            return int(psutil.Process(row[0]).ppid())

    def memory_mib(self) -> float:
        """Of a worker, what is its own and its part of what is shared; the median."""
        sizes = [each.memory_full_info().pss for each in self.nodes.values()]
        return statistics.median(sizes) / 2**20

    def passes_ms(self) -> list[float]:
        """How long each pass of the scheduler took so far."""
        path = self.scratch / SCHEDULER / "looks.json"
        return [1000 * each for each in json.loads(path.read_text() if path.exists() else "[]")]


@dataclass(frozen=True)
class Used:
    """What was used up to a moment."""

    at_s: float
    ledger: int
    prefect: int
    workers_s: float
    scheduler_s: float
    server_s: float
    database_s: float

    def since(self, before: "Used") -> "Used":
        """What was used between the two."""
        return Used(*(getattr(self, f) - getattr(before, f) for f in self.__dataclass_fields__))


@contextmanager
def bench(scratch: Path, asked: argparse.Namespace) -> Iterator[Bench]:
    """PostgreSQL, a Prefect server, and a process that forks workers."""
    let_through(scratch)
    options = ["-c", "max_connections=600", "-c", "shared_preload_libraries=pg_stat_statements"]
    options += ["-c", "pg_stat_statements.max=10000", "-c", "pg_stat_statements.track_utility=off"]
    with ExitStack() as stack:
        server = stack.enter_context(postgresql.server(*options))
        ledger_url, prefect_url = (postgresql.new_database(server) for _ in range(2))
        head = LiveSite(
            scratch / "head", "process", free_port(), HEADWAY_LEDGER_URL=ledger_url,
            HEADWAY_SERVER_DATABASE_URL=prefect_url, HEADWAY_NODE="zz-head",
        )  # fmt: skip
        head.home.mkdir()
        with (scratch / "server.log").open("wb") as log:
            serving = subprocess.Popen(
                [BIN / "headway", "serve"],
                env=head.env, cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip
        stack.callback(serving.kill)
        auth = head.home / "auth"
        said = (scratch / "server.log").read_text
        wait_for(auth.exists, said)
        with head.server() as prefect:
            wait_for(prefect.is_healthy, said)
        joined = head.run("node", "join", "--server", f"{head.url}/api", "--ledger", ledger_url)
        assert joined.returncode == 0, joined.stderr + joined.stdout
        # To join has started a node here, too.
        assert head.run("down", "--stop", "--yes").returncode == 0
        with psycopg.connect(ledger_url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
        settings = Settings(
            home=head.home, port=head.port, node="zz-head", runtime="process",
            ledger_url=ledger_url,  # type: ignore[arg-type]
        )  # fmt: skip
        env = site_environment(settings) | {
            "HEADWAY_RUNTIME": "process",
            "HEADWAY_LEDGER_URL": ledger_url,
            "HEADWAY_SERVER_URL": f"{head.url}/api",
            "BENCH_SECONDS": str(asked.seconds),
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
        }
        zygote = subprocess.Popen(
            [sys.executable, __file__, "--zygote", str(scratch)],
            env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        stack.callback(zygote.kill)
        with closing(Ledger.open(ledger_url)) as ledger:
            made = Bench(
                head, ledger_url, prefect_url, scratch, psutil.Process(serving.pid), zygote, ledger
            )
            try:
                yield made
            finally:
                for each in (made.scheduler, *made.nodes.values()):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()


def fill(made: Bench, count: int) -> None:
    """Let *count* runs wait: copies of one in Prefect, rows in the ledger."""
    with made.head.server() as server:
        one = server.submit({"job": JOB}, name="waits", tags=[], key=None).run_id
        server.end(one, "CANCELLED", "a pattern for others")
    copied = """
        WITH made AS (
            INSERT INTO flow_run SELECT (jsonb_populate_record(r, jsonb_build_object(
                'id', i.id, 'state_id', NULL, 'state_type', 'SCHEDULED', 'end_time', NULL,
                'state_name', 'Scheduled', 'idempotency_key', i.id, 'start_time', NULL,
                'next_scheduled_start_time', now() + interval '1 day'))).*
            FROM flow_run r, (SELECT gen_random_uuid() AS id FROM generate_series(1, %s)) i
            WHERE r.id = %s RETURNING id
        ) SELECT id FROM made"""
    states = """
        INSERT INTO flow_run_state SELECT (jsonb_populate_record(s, jsonb_build_object(
            'id', gen_random_uuid(), 'flow_run_id', f.id, 'type', 'SCHEDULED',
            'name', 'Scheduled'))).*
        FROM flow_run f JOIN flow_run_state s
            ON s.id = (SELECT id FROM flow_run_state WHERE flow_run_id = %s LIMIT 1)
        WHERE f.state_id IS NULL AND f.state_type = 'SCHEDULED'"""
    joined = """
        UPDATE flow_run f SET state_id = s.id FROM flow_run_state s
        WHERE s.flow_run_id = f.id AND f.state_id IS NULL"""
    with psycopg.connect(made.server_database) as connection:
        ids = [str(row[0]) for row in connection.execute(copied, (count, one)).fetchall()]
        connection.execute(states, (one,))
        connection.execute(joined)
    demand = Demand(64 * 2**20, 1.0, gpus=1, gpu_memory_bytes=GIB)
    fill_queue(made.ledger, ids, JOB, demand)
    # Prefect offers them once they are known, as runs that have come one after the other are.
    wait_for(lambda: untagged(made.ledger) == 0, lambda: f"{untagged(made.ledger)} are not known")
    with psycopg.connect(made.server_database) as connection:
        connection.execute(
            "UPDATE flow_run SET next_scheduled_start_time = now() - interval '1 day'"
            " WHERE next_scheduled_start_time > now() + interval '1 hour'"
        )


def untagged(ledger: Ledger) -> int:
    """Runs that wait and have no tag yet: no plan has had them."""
    with ledger._database.reading() as session:  # noqa: SLF001
        query = select(func.count()).where(RunRow.state == RunState.WAITING)
        return session.exec(query.where(col(RunRow.tag).is_(None))).one()


def hand_in(server: PrefectServer, count: int) -> None:
    """Submit runs."""
    for number in range(count):
        server.submit({"job": JOB}, name=f"run-{number}", tags=[], key=None)


def gaps(ledger: Ledger, before: set[str]) -> tuple[list[float], list[float]]:
    """Seconds from each release to the next grant and to the next program's start on its GPU.

    Of runs that are not of those *before*.
    """
    same = col(AttemptRow.run_id) == col(LeaseRow.run_id)
    same &= col(AttemptRow.attempt) == col(LeaseRow.attempt)
    on_gpu = col(LeaseRow.lease_id) == col(LeaseGpuRow.lease_id)
    with ledger._database.reading() as session:  # noqa: SLF001 - what no command shows
        query = select(LeaseGpuRow.uuid, LeaseRow.granted_at, AttemptRow.started_at).add_columns(
            col(LeaseRow.released_at), col(LeaseRow.run_id)
        )
        rows = session.execute(query.join(LeaseRow, on_gpu).join(AttemptRow, same)).all()
    slots: dict[str, list[Sequence[Any]]] = {}
    for uuid, *times, run_id in rows:
        if run_id not in before:
            slots.setdefault(uuid, []).append(times)
    granted, started = list[float](), list[float]()
    for leases in slots.values():
        leases.sort(key=lambda times: times[0])
        for (_, _, released), (grant, start, _) in pairwise(leases):
            if released is not None and start is not None:
                granted.append((grant - released).total_seconds())
                started.append((start - released).total_seconds())
    return granted, started


def measure(made: Bench, count: int, asked: argparse.Namespace) -> dict[str, float]:
    """One row of the table."""
    made.grow(count)
    time.sleep(_SETTLED_S)
    made.statements(0)
    before = made.used()
    time.sleep(asked.idle)
    idle = made.used().since(before)
    for calls, took_ms, words in made.statements(asked.statements):
        print(f"idle {calls:8d} {took_ms:9.0f} ms  {words!r}", file=sys.stderr)
    passed, before = len(made.passes_ms()), made.used()
    ended = states(made.ledger, RunState.ENDED)
    runs = count * asked.rounds
    if asked.waiting:
        fill(made, asked.waiting)
    else:
        with made.head.server() as server:
            hand_in(server, runs)
    wait_for_ends(made.ledger, ended, runs, asked)
    failed = failures(made.ledger, ended)
    if failed:
        raise SystemExit(f"{len(failed)} of {runs} failed, so nothing was measured: {failed[0]}")
    load = made.used().since(before)
    time.sleep(1.5)
    looks = made.passes_ms()[passed:]
    granted, started = gaps(made.ledger, ended)

    def beyond(what: str) -> float:
        """What a run took beyond what the idle site would have taken in that time."""
        idle_rate: float = getattr(idle, what) / idle.at_s
        used: float = getattr(load, what)
        return (used - idle_rate * load.at_s) / runs

    return {
        "nodes": count,
        "idle ledger, queries/s": idle.ledger / idle.at_s,
        "idle Prefect, queries/s": idle.prefect / idle.at_s,
        "idle worker, % of a core": 100 * idle.workers_s / idle.at_s / count,
        "idle scheduler, %": 100 * idle.scheduler_s / idle.at_s,
        "idle server, %": 100 * idle.server_s / idle.at_s,
        "idle database, %": 100 * idle.database_s / idle.at_s,
        "worker, MiB": made.memory_mib(),
        "ledger, queries/run": beyond("ledger"),
        "Prefect, queries/run": beyond("prefect"),
        "workers, s/run": beyond("workers_s"),
        "scheduler, s/run": beyond("scheduler_s"),
        "server, s/run": beyond("server_s"),
        "passes/run": len(looks) / runs,
        "pass, median ms": statistics.median(looks or [0.0]),
        "pass, p95 ms": p95(looks),
        "free → grant, median s": statistics.median(granted or [0.0]),
        "free → grant, p95 s": p95(granted),
        "free → start, median s": statistics.median(started or [0.0]),
        "free → start, p95 s": p95(started),
    }


def p95(values: list[float]) -> float:
    """Their 95 % quantile."""
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else sum(values)


def states(ledger: Ledger, state: RunState) -> set[str]:
    """The runs that are in a state."""
    with ledger._database.reading() as session:  # noqa: SLF001
        return set(session.exec(select(RunRow.run_id).where(RunRow.state == state)))


def failures(ledger: Ledger, before: set[str]) -> list[str]:
    """What ended the runs of which no program ended well, but for those *before*."""
    with ledger._database.reading() as session:  # noqa: SLF001
        query = select(RunRow).where(RunRow.state == RunState.ENDED)
        well = col(RunRow.exit_kind).in_((ExitKind.OK, ExitKind.CANCELLED))
        rows = session.exec(query.where(~well)).all()
        return [f"{row.exit_kind}: {row.exit_message}" for row in rows if row.run_id not in before]


def wait_for_ends(ledger: Ledger, before: set[str], runs: int, asked: argparse.Namespace) -> None:
    """Until *runs* more have ended than *before*."""
    end_s, over = time.monotonic() + asked.patience, 0
    while time.monotonic() < end_s:
        over = len(states(ledger, RunState.ENDED) - before)
        if over >= runs:
            return
        print(f"{over} of {runs} have ended", end="\r", file=sys.stderr, flush=True)
        time.sleep(1.0)
    raise SystemExit(f"{over} of {runs} have ended in time")


def main() -> None:
    """Measure each number of nodes on one site that grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 5, 10, 20, 50])
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the idle measurement")
    parser.add_argument("--patience", type=float, default=900.0)
    parser.add_argument("--statements", type=int, default=0)
    parser.add_argument("--zygote", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.zygote is not None:
        be_zygote(asked.zygote)
        return
    if asked.waiting and len(asked.nodes) > 1:
        parser.error("--waiting is for one number of --nodes")
    if reason := postgresql.why_none():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        Path(scratch).chmod(0o711)
        with bench(Path(scratch), asked) as made:
            found = []
            for count in asked.nodes:
                found.append(measure(made, count, asked))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
                for calls, took_ms, words in made.statements(asked.statements):
                    print(f"{calls:8d} {took_ms:9.0f} ms  {words!r}", file=sys.stderr)
    print("| | " + " | ".join(f"{row['nodes']} nodes" for row in found) + " |")
    print("|---|" + "---|" * len(found))
    for name in list(found[0])[1:]:
        print(f"| {name} | " + " | ".join(f"{row[name]:.3g}" for row in found) + " |")


if __name__ == "__main__":
    main()
