"""What lending idle host memory gains on a trace, with made-up figures of host memory.

    PYTHONPATH=. python benchmarks/lending.py TRACE.csv NODES GPUS HOST_GIB

No public trace says what jobs promised, used and whether they might be stopped. So each asks for
between half and twice its fair part of a node, uses a share of that (log-normal, median 30 %), and
a part of the jobs, drawn, is preemptible.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from random import Random

from headway.policy.settings import PolicySettings
from headway.replay.cluster import Shape
from headway.replay.simulate import PolicyName, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob, read_jobs
from headway.units import GIB, HOUR_S

_MEDIAN_USED, _SPREAD = 0.3, 0.6


def made_up(rows: list[TraceJob], shape: Shape, share: float) -> list[TraceJob]:
    """*rows* with host memory, of which *share* may be stopped."""
    found = []
    for at, row in enumerate(rows):
        chance = Random(at)
        part = min(row.gpus, shape.gpus) / shape.gpus * 2 ** chance.uniform(-1, 1)
        asked = int(shape.host_memory_bytes * min(part, 0.95))
        used = min(_MEDIAN_USED * chance.lognormvariate(0, _SPREAD), 1.0)
        found.append(
            replace(
                row,
                host_memory_bytes=asked,
                host_peak_bytes=max(int(asked * used), 1),
                preemptible=chance.random() < share,
            )
        )
    return found


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("trace", type=Path)
    ask.add_argument("nodes", type=int)
    ask.add_argument("gpus", type=int)
    ask.add_argument("host_gib", type=int)
    given = ask.parse_args()
    shape = Shape(given.nodes, given.gpus, 24 * GIB, given.host_gib * GIB)
    told, sharing = Estimates.LEARNED, GpuSharing.HEADWAY
    rows = read_jobs(given.trace.read_bytes(), given.trace.name, told, sharing)
    print("| preemptible | lends | mean wait h | of these | of the others | lent | stopped |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for share in (0.2, 0.5):
        jobs = made_up(rows, shape, share)
        for lends in (False, True):
            settings = PolicySettings(lend_host_memory=lends)
            result = simulate(jobs, shape, PolicyName.HEADWAY, sharing, told, settings=settings)
            waits = [
                (one.trace.preemptible, one.start_s - one.trace.submit_s) for one in result.jobs
            ]
            groups = (
                [wait for _, wait in waits],
                [wait for may, wait in waits if may],
                [wait for may, wait in waits if not may],
            )
            hours = " | ".join(f"{sum(each) / max(len(each), 1) / HOUR_S:.1f}" for each in groups)
            lent = sum(one.ask.lent or one.stops > 0 for one in result.jobs)
            stops = sum(one.stops for one in result.jobs)
            said = "yes" if lends else "no"
            print(f"| {share:.0%} | {said} | {hours} | {lent} | {stops} |")


if __name__ == "__main__":
    main()
