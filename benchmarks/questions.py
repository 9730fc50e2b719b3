"""What people wait for while many runs wait: `python benchmarks/questions.py --waiting 10000`.

A gateway is asked what `headway queue`, `why`, `show` and `usage` ask, of a ledger with a node that
is full and a long queue. Printed are seconds: of the first time, when it reads the whole queue, and
of the median of the next ones.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from uuid import UUID

import httpx
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.gateway.tokens import issue
from headway.ledger import Ledger
from headway.model.access import Scope
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Gpu, Node
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


def run_id(number: int) -> str:
    """The id of one run."""
    return str(UUID(int=number))


def fill(site: Site, count: int) -> None:
    """A node with eight GPUs whose place a run has, and *count* runs that wait."""
    gpus = tuple(Gpu(f"GPU-{index}", index, "A100", 2 * GIB) for index in range(8))
    node = Node("left", "gpu", Capacity(8.0, 64 * GIB, gpus))
    site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
    fill_queue(site.ledger, map(run_id, range(count + 1)), JOB, DEMAND)
    lease = admit_in_term(site.ledger, run_id(0), "left", DEMAND, ttl_s=900.0)
    assert isinstance(lease, Lease)


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
        last = run_id(asked.waiting)
        with serving(site) as address, httpx.Client(base_url=address, timeout=300.0) as client:
            client.headers["Authorization"] = f"Bearer {token}"
            for what, path in (
                ("queue", "/v1/queue"),
                ("why", f"/v1/runs/{last}/why"),
                ("show", f"/v1/runs/{last}"),
                ("usage", "/v1/usage"),
            ):
                took_s = []
                for _ in range(asked.rounds + 1):
                    begun_s = time.monotonic()
                    client.get(path).raise_for_status()
                    took_s.append(time.monotonic() - begun_s)
                later_s = statistics.median(took_s[1:])
                print(f"{what:6} first {took_s[0]:6.2f} s, then {later_s:6.2f} s")


if __name__ == "__main__":
    main()
