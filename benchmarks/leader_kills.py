"""A scheduler that leads is killed or stopped: `python benchmarks/leader_kills.py --tries 200`.

Several sites run beside each other, each with four nodes of eight GPUs, runs that wait and end all
the time, and three schedulers on three nodes: the election, the passes and the grants of a site,
without Prefect. Again and again the leader is killed (and begins anew, as its supervisor has it) or
stopped at some moment of its passes; one that was stopped goes on once another one has planned.
Printed are how long it takes until another one has planned, and what must never be: a run with two
leases, a GPU that two runs have, a lease that was granted in a term after the next one had begun.
"""

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import uuid4

import psycopg
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.errors import LeaseLost, LedgerUnreachable
from headway.ledger import Ledger
from headway.ledger.errors import TermOver
from headway.model.lease import Demand, Sharing
from headway.model.node import Capacity, Gpu, GpuReading, HostReading, Node, NodeReading
from headway.model.run import Exit, ExitKind, Measurement
from headway.scheduler.queue import PoolQueue
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.support import postgresql
from tests.support.queued import fill_queue

NODES, GPUS, SCHEDULERS, LANES = 4, 8, 3, 4
WAITING = 200
RUNS_S = 1.0
"""So long each run keeps its place at most."""
FORK = multiprocessing.get_context("fork")
JOB = {
    "name": "waits", "image": "python:3.11", "command": ["python", "train.py"],
    "resources": {"gpus": 1, "gpu_memory": "1GiB", "sharing": "whole"},
}  # fmt: skip
DEMAND = Demand(GIB, 1.0, gpus=1, gpu_memory_bytes=GIB, sharing=Sharing.WHOLE)
NEVER = {
    "runs with two leases": (
        "SELECT count(*) FROM (SELECT 1 FROM lease a JOIN lease b ON a.run_id = b.run_id"
        " AND a.lease_id < b.lease_id AND b.granted_at < coalesce(a.released_at, 'infinity')) AS x"
    ),
    "GPUs of two runs": (
        "SELECT count(*) FROM (SELECT 1 FROM lease a JOIN lease_gpu p ON p.lease_id = a.lease_id"
        " JOIN lease_gpu q ON q.uuid = p.uuid AND q.lease_id > p.lease_id"
        " JOIN lease b ON b.lease_id = q.lease_id"
        " WHERE b.granted_at < coalesce(a.released_at, 'infinity')) AS x"
    ),
    "leases of a term that was over": (
        "SELECT count(*) FROM lease a WHERE a.granted_at >"
        " (SELECT min(b.granted_at) FROM lease b WHERE b.term > a.term)"
    ),
}


def site_of(url: str, folder: Path, node: str) -> Site:
    """What a process of *node* has of its site."""
    settings = Settings(
        home=folder / node, ledger_url=SecretStr(url), node=node, runtime="process", pool="gpu"
    )
    return Site(settings, SystemClock(), Ledger.open)


def schedule(site: Site, planned: "ctypes.Array[ctypes.c_double]") -> None:
    """Be a scheduler until killed: what `headway.leader.process` does, without Prefect.

    *planned* gets the time of its newest pass, by the clock of the machine, and its term.
    """
    queue = PoolQueue(site)
    while True:
        # One that was stopped finds its connection closed: it begins anew, as a site's does.
        with contextlib.suppress(TermOver, LedgerUnreachable):
            leader = queue.contend(reaches_prefect=True)
            if queue.leads:
                queue.run_pass()
                planned[0], planned[1] = time.monotonic(), leader.term.number
        time.sleep(0.05 if queue.leads else 0.5)


class Lane:
    """One site, and what was seen there."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._url, self._folder, self._random = url, folder, random.Random(seed)
        self.site = site_of(url, folder, "n0")
        for at in range(NODES):
            gpus = tuple(Gpu(f"GPU-{at}-{i}", i, "A100", 80 * GIB) for i in range(GPUS))
            node = Node(f"n{at}", "gpu", Capacity(64.0, 256 * GIB, gpus))
            self.site.ledger.nodes.register(node, boot_id="boot", worker_token=f"agent {at}")
        self.agents_go_on()
        self._planned = [FORK.RawArray(ctypes.c_double, 2) for _ in range(SCHEDULERS)]
        self._schedulers: list[BaseProcess | None] = [None] * SCHEDULERS
        self._over = threading.Event()
        self.took_s: dict[str, list[float]] = {"killed": [], "stopped": []}
        self.granted = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Schedulers and agents run while inside."""
        for at in range(SCHEDULERS):
            self._begin(at)
        agents = threading.Thread(target=self._agents)
        agents.start()
        try:
            yield
        finally:
            self._over.set()
            agents.join()
            for each in self._schedulers:
                assert each is not None
                each.kill()
                each.join()

    def _begin(self, at: int) -> None:
        site = site_of(self._url, self._folder, f"n{at}")
        process = FORK.Process(target=schedule, args=(site, self._planned[at]), daemon=True)
        process.start()
        self._schedulers[at] = process

    def _agents(self) -> None:
        while not self._over.wait(0.2):
            self.agents_go_on()

    def agents_go_on(self) -> None:
        """Report of every node, end some of what runs, and submit what is missing."""
        ledger = self.site.ledger
        host = HostReading(256 * GIB, GIB, 0.0, 100 * GIB)
        for at in range(NODES):
            gpus = tuple(GpuReading(f"GPU-{at}-{i}", i, "A100", 80 * GIB, 0) for i in range(GPUS))
            reading = NodeReading(ledger.now(), host, gpus)
            assert ledger.nodes.heartbeat(f"n{at}", f"agent {at}", reading)
            for lease in ledger.leases.live(f"n{at}"):
                if self._random.random() < 0.2 / RUNS_S:
                    with contextlib.suppress(LeaseLost):
                        ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, ""), Measurement())
                    ledger.leases.release(lease.fence)
                    self.granted += 1
        missing = WAITING - len(ledger.runs.waiting_ids("gpu"))
        fill_queue(ledger, [str(uuid4()) for _ in range(missing)], JOB, DEMAND)

    def tries(self, count: int) -> None:
        """Kill or stop the leader *count* times."""
        for number in range(count):
            at = self._leads()
            time.sleep(self._random.uniform(0.5, 1.5))
            leader = self._schedulers[at]
            assert leader is not None
            assert leader.pid is not None
            how = ("killed", "stopped")[number % 2]
            os.kill(leader.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            begun_s, term = time.monotonic(), self._planned[at][1]
            others = [each for other, each in enumerate(self._planned) if other != at]
            # Nobody takes its place sooner than one that waits for its term to end.
            while not any(p[0] > begun_s and p[1] > term for p in others):
                assert time.monotonic() - begun_s < 60.0, "nobody has planned"
                time.sleep(0.01)
            self.took_s[how].append(time.monotonic() - begun_s)
            if how == "stopped":
                os.kill(leader.pid, signal.SIGCONT)
            else:
                leader.join()
                self._begin(at)

    def _leads(self) -> int:
        """Who planned last, once somebody has in the last second."""
        while True:
            at = max(range(SCHEDULERS), key=lambda other: self._planned[other][0])
            if time.monotonic() - self._planned[at][0] < 1.0:
                return at
            time.sleep(0.05)

    def never(self) -> dict[str, int]:
        """How often was what must not be."""
        with psycopg.connect(self._url.replace("+psycopg", "")) as connection:
            rows = {what: connection.execute(query).fetchone() for what, query in NEVER.items()}
        return {what: int(row[0]) for what, row in rows.items() if row is not None}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(postgresql.server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lanes = [
            Lane(postgresql.new_database(server), folder / str(at), asked.seed + at)
            for at in range(LANES)
        ]
        for lane in lanes:  # before there are threads: they fork
            stack.enter_context(lane.running())
        threads = [
            threading.Thread(target=lane.tries, args=(-(-asked.tries // LANES),)) for lane in lanes
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        found = [lane.never() for lane in lanes]
    print("| the leader is | tries | another one has planned after: median | p95 | most |")
    print("|---|---|---|---|---|")
    for how in ("killed", "stopped"):
        took_s = sorted(s for lane in lanes for s in lane.took_s[how])
        p95_s = took_s[int(0.95 * (len(took_s) - 1))]
        median_s = statistics.median(took_s)
        print(f"| {how} | {len(took_s)} | {median_s:.1f} s | {p95_s:.1f} s | {took_s[-1]:.1f} s |")
    print(f"\nleases granted and given back: {sum(lane.granted for lane in lanes)}")
    for what in NEVER:
        print(f"{what}: {sum(each[what] for each in found)}")


if __name__ == "__main__":
    main()
