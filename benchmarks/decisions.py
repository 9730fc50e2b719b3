"""A worker's look at a long line on PostgreSQL: reading the pool, planning, saying why.

    python benchmarks/decisions.py [--waiting 100 1000 10000] [--passes 15]

Four nodes of eight GPUs, all of them busy. Prints the median time of one look,
and of the longest; a ratio shows how it grows with the line.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sqlmodel import Session  # noqa: E402

from headway.clock import SystemClock  # noqa: E402
from headway.ledger.tables import RunRow  # noqa: E402
from headway.model.lease import Demand  # noqa: E402
from headway.model.node import Capacity, Gpu, Node  # noqa: E402
from headway.model.run import Prediction, RunState  # noqa: E402
from headway.settings import Settings  # noqa: E402
from headway.site import Site  # noqa: E402
from headway.units import GIB  # noqa: E402
from tests.support import postgresql  # noqa: E402
from tests.support.leading import leading  # noqa: E402
from tests.support.postgresql import new_database  # noqa: E402


def main() -> None:
    """Measure each length of the queue on a database of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--passes", type=int, default=15)
    asked = parser.parse_args()
    print("| waiting | first look, ms | median look, ms | longest, ms |")
    print("|---|---|---|---|", flush=True)
    with postgresql.server() as server, tempfile.TemporaryDirectory() as home:
        for waiting in asked.waiting:
            looks = measure(new_database(server), Path(home) / str(waiting), waiting, asked.passes)
            first, *rest = (1000 * look for look in looks)
            print(
                f"| {waiting} | {first:.0f} | {statistics.median(rest):.0f} | {max(rest):.0f} |",
                flush=True,
            )


def measure(url: str, home: Path, waiting: int, passes: int) -> list[float]:
    """Seconds of each look at a line of *waiting* runs."""
    random.seed(7)
    settings = Settings(home=home, runtime="process", node="n0", ledger_url=url)  # type: ignore[arg-type]
    site = Site(settings, SystemClock())
    for n in range(4):
        gpus = tuple(Gpu(f"{n}-{g}", g, "A100", 24 * GIB) for g in range(8))
        site.ledger.nodes.register(
            Node(f"n{n}", "gpu", Capacity(64, 512 * GIB, gpus)), boot_id="b", worker_token="w"
        )
    fill(site, waiting + 40)
    line = leading(site)
    line.run_pass()  # every slot is taken first, so that the looks that count find a busy site
    looks = []
    for _ in range(passes + 1):
        begun = time.perf_counter()
        line.run_pass()
        looks.append(time.perf_counter() - begun)
    site.ledger.close()
    return looks


def fill(site: Site, count: int) -> None:
    """Put *count* runs into the queue, as a worker would have."""
    now = site.ledger.now()
    job = {"name": "x", "image": "i:1", "command": ["true"]}
    rows = []
    for number in range(count):
        length = random.lognormvariate(8, 2)
        demand = Demand(GIB, 1.0, gpus=random.choice([1, 1, 1, 2, 4]))
        demand = replace(demand, gpu_memory_bytes=random.randrange(9, 24) * GIB)
        rows.append(
            RunRow(
                run_id=str(UUID(int=number + 1)),
                name=f"run-{number}",
                owner="me",
                team=f"team-{number % 5}",
                pool="gpu",
                queue="default",
                job=job,
                state=RunState.WAITING,
                submitted_at=now - timedelta(minutes=random.randrange(5000)),
                prediction=Prediction(length, length / 2, 2 * length),
                demand=demand,
            )
        )
    with Session(site.ledger.pools._database.engine) as session:  # noqa: SLF001
        session.add_all(rows)
        session.commit()


if __name__ == "__main__":
    main()
