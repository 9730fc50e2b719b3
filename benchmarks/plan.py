"""Cost of one plan against the length of the queue, and of a replay of many jobs.

python benchmarks/plan.py                     plans for 4 nodes × 8 GPUs, 100 to 10,000 waiting
python benchmarks/plan.py TRACE.csv [JOBS]    TRACE repeated to JOBS jobs, on 2 × 8 GPUs
"""

import random
import statistics
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headway.model.lease import Demand, GpuGrant, Lease, Sharing
from headway.model.node import Capacity, Gpu, Node
from headway.policy.fit import WaitingRun
from headway.policy.order import VirtualTime
from headway.policy.plan import plan
from headway.policy.pool import NodeView, RunningRun
from headway.policy.promise import PoolTotals
from headway.policy.queue import Queue
from headway.policy.settings import PolicySettings
from headway.replay.cluster import Shape
from headway.replay.simulate import PolicyName, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, read_jobs
from headway.units import GIB

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def _site() -> tuple[list[NodeView], list[RunningRun]]:
    views, running = [], []
    for n in range(4):
        gpus = tuple(Gpu(f"{n}-{g}", g, "A100", 24 * GIB) for g in range(8))
        leases = []
        for g in range(8):
            run = f"run-{n}-{g}"
            grant = GpuGrant(f"{n}-{g}", 16 * GIB, Sharing.SHARED, 0.7)
            end = NOW + timedelta(minutes=random.randrange(600))
            more: Any = {"granted_at": NOW - timedelta(hours=1), "expires_at": NOW}
            leases.append(
                Lease(g, run, 1, f"n{n}", "t", GIB, 1.0, (grant,), {}, **more, predicted_end_at=end)
            )
            running.append(RunningRun(run))
        views.append(NodeView(Node(f"n{n}", "pool", Capacity(64, 512 * GIB, gpus)), tuple(leases)))
    return views, running


def _waiting(count: int) -> list[WaitingRun]:
    return [
        WaitingRun.of(
            f"w{at}",
            Demand(
                GIB,
                gpus=random.choice([1, 1, 1, 2, 4]),
                gpu_memory_bytes=random.randrange(9, 24) * GIB,
            ),
            NOW - timedelta(minutes=random.randrange(5000)),
            settings=PolicySettings(),
            median_s=(length := random.lognormvariate(8, 2)),
            high_s=2 * length,
        )
        for at in range(count)
    ]


def plans() -> None:
    """Time a plan against the length of the queue."""
    views, running = _site()
    settings = PolicySettings()
    for count in (100, 1000, 10_000):
        line, took = _waiting(count), []
        for _ in range(20):
            began = time.perf_counter()
            queue = Queue[WaitingRun](
                settings, PoolTotals(32.0, 256.0), VirtualTime(settings, 32, NOW.timestamp())
            )
            for run in line:
                queue.add(run, NOW.timestamp())
            front = queue.front(NOW.timestamp())
            plan(views, front, running, now=NOW, settings=settings)
            took.append(time.perf_counter() - began)
        print(f"{count:6d} waiting: plan {statistics.median(took) * 1000:.0f} ms (median of 20)")


def replays(path: Path, count: int) -> None:
    """Time the replay of *path* repeated to *count* jobs, by policy."""
    for name, told, sharing in (
        (PolicyName.FIFO, Estimates.USER, GpuSharing.WHOLE),
        (PolicyName.EASY, Estimates.USER, GpuSharing.WHOLE),
        (PolicyName.HEADWAY, Estimates.LEARNED, GpuSharing.HEADWAY),
    ):
        rows = read_jobs(path.read_bytes(), path.name, told, sharing)
        length_s = rows[-1].submit_s + 1
        times = -(-count // len(rows))
        long = [
            replace(row, job_id=f"{row.job_id}-{turn}", submit_s=row.submit_s + turn * length_s)
            for turn in range(times)
            for row in rows
        ][:count]
        began, worked = time.perf_counter(), time.process_time()
        simulate(long, Shape(2, 8, 24 * GIB), name, sharing, told, settings=PolicySettings())
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - worked
        print(
            f"{name}: {count} jobs in {took_s:.0f} s, {cpu_s:.0f} s of them computing", flush=True
        )


if __name__ == "__main__":
    random.seed(1)
    if len(sys.argv) > 1:
        replays(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
    else:
        plans()
