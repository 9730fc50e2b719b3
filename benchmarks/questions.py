"""What people wait for while many runs wait: `python benchmarks/questions.py --waiting 10000`.

A gateway is asked what `headway queue`, `why`, `show` and `usage` ask, of a ledger with a node that
is full and a long queue, which a scheduler has planned and played. Printed are seconds: of the
first time, when it reads the whole queue, and of the median of the next ones.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from uuid import UUID

import httpx
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.gateway.tokens import issue
from headway.leader.play import play_queue
from headway.ledger import Ledger
from headway.model.access import Scope
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Gpu, GpuReading, HostReading, Node, NodeReading
from headway.scheduler.queue import PoolQueue
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.support import postgresql
from tests.support.api import serving
from tests.support.leading import admit_in_term
from tests.support.queued import fill_queue

JOB = {
    "name": "waits", "image": "python:3.11", "command": ["python", "train.py"],
    "resources": {"gpus": 1, "gpu_memory": "1GiB"},
}  # fmt: skip
DEMAND = Demand(GIB, 1.0, gpus=1, gpu_memory_bytes=GIB)
ALL = Demand(GIB, 8.0, gpus=8, gpu_memory_bytes=2 * GIB)


def run_id(number: int) -> str:
    """The id of one run."""
    return str(UUID(int=number))


def fill(site: Site, count: int) -> None:
    """A node with eight GPUs whose place a run has, and *count* runs that wait."""
    gpus = tuple(Gpu(f"GPU-{index}", index, "A100", 2 * GIB) for index in range(8))
    node = Node("left", "gpu", Capacity(8.0, 64 * GIB, gpus))
    site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
    fill_queue(site.ledger, map(run_id, range(count + 1)), JOB, DEMAND)
    lease = admit_in_term(site.ledger, run_id(0), "left", ALL, ttl_s=900.0)
    assert isinstance(lease, Lease)
    beat(site)
    scheduler = PoolQueue(site)
    scheduler.contend(reaches_prefect=True)
    scheduler.run_pass()
    play_queue(site, "gpu", {})


def beat(site: Site) -> None:
    """What the node's agent says every few seconds: it is there."""
    free = tuple(GpuReading(f"GPU-{at}", at, "A100", 2 * GIB, 0) for at in range(8))
    reading = NodeReading(site.ledger.now(), HostReading(64 * GIB, GIB, 0.0, 100 * GIB), free)
    assert site.ledger.nodes.heartbeat("left", site.worker_token, reading)


def go_on_beating(site: Site, over: threading.Event) -> None:
    """So long as *over* is not set."""
    while not over.wait(5.0):
        beat(site)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with postgresql.server() as server, tempfile.TemporaryDirectory() as folder:
        url = SecretStr(postgresql.new_database(server))
        settings = Settings(home=Path(folder), ledger_url=url, node="left", runtime="process")
        site = Site(settings, SystemClock(), Ledger.open)
        fill(site, asked.waiting)
        token, _ = issue(
            site.ledger, user="me", team="ops", scopes=set(Scope), lifetime_s=3600.0, actor="me"
        )
        last, over = run_id(asked.waiting), threading.Event()
        threading.Thread(target=go_on_beating, args=(site, over)).start()
        with serving(site) as address, httpx.Client(base_url=address, timeout=300.0) as client:
            client.headers["Authorization"] = f"Bearer {token}"
            for what, path in (
                ("queue", "/v1/queue"),
                ("why", f"/v1/runs/{last}/why"),
                ("why, of the first", f"/v1/runs/{run_id(1)}/why"),
                ("show", f"/v1/runs/{last}"),
                ("usage", "/v1/usage"),
            ):
                took_s = []
                for _ in range(asked.rounds + 1):
                    begun_s = time.monotonic()
                    client.get(path).raise_for_status()
                    took_s.append(time.monotonic() - begun_s)
                later_s = statistics.median(took_s[1:])
                print(f"{what:17} first {took_s[0]:6.2f} s, then {later_s:6.2f} s")
        over.set()


if __name__ == "__main__":
    main()
