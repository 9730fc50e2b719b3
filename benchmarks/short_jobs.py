"""Short jobs over four nodes on PostgreSQL: how long a slot is idle while a job waits for it.

    python benchmarks/short_jobs.py [--jobs 300] [--seconds 1]

Four workers on this machine as four nodes of two stub GPUs each; every job takes
one GPU alone. A slot is idle from the release of its lease to its next one, as
the ledger has it, as long as jobs wait. Prints the gaps beside two poll intervals
of Prefect's worker.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from prefect.settings import PREFECT_WORKER_QUERY_SECONDS  # noqa: E402
from sqlmodel import col, select  # noqa: E402

from headway.ledger import Ledger  # noqa: E402
from headway.ledger.tables import LeaseGpuRow, LeaseRow, RunRow  # noqa: E402
from headway.model.run import RunState  # noqa: E402
from tests.support import postgresql  # noqa: E402
from tests.support.nodes import StubNode, several_nodes  # noqa: E402
from tests.support.site import LiveSite, sleeper  # noqa: E402

NODES, GPUS = 4, 2


def main() -> None:
    """Bring four nodes up, submit the jobs, wait for the last, print the gaps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    if reason := postgresql.why_none():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as scratch, postgresql.server() as server:
        nodes = {f"node-{number}": StubNode(GPUS) for number in range(NODES)}
        with several_nodes(Path(scratch), server, nodes) as sites:
            head = sites["node-0"]
            ledger = Ledger.open(head.env["HEADWAY_LEDGER_URL"])
            begun = time.monotonic()
            _hand_in(head, asked.jobs, asked.seconds)
            _wait(ledger, asked.jobs)
            took_s = time.monotonic() - begun
            gaps, failed = _gaps(ledger)
            ledger.close()
    polls_s = 2 * PREFECT_WORKER_QUERY_SECONDS.value()
    slots = NODES * GPUS
    ideal_s = asked.jobs * asked.seconds / slots
    print(
        "| jobs | slots | failed | idle: median | p95 | longest | two polls | longest ÷ two polls |"
    )
    print("|---|---|---|---|---|---|---|---|")
    p95 = statistics.quantiles(gaps, n=20)[-1]
    print(
        f"| {asked.jobs} | {slots} | {failed} | {statistics.median(gaps):.2f} s | {p95:.2f} s "
        f"| {max(gaps):.2f} s | {polls_s:.0f} s | {max(gaps) / polls_s:.2f} |"
    )
    print(f"in all {took_s:.0f} s; the programs alone would fill the slots for {ideal_s:.0f} s")


def _hand_in(head: LiveSite, jobs: int, seconds: float) -> None:
    wants = {"gpus": 1, "gpu_memory": "1GiB", "sharing": "whole"}
    job = sleeper() | {
        "command": ["sleep", str(seconds)],
        "resources": wants | {"host_memory": "64MiB", "cpus": 0.05},
        "max_runtime": "5m",
    }
    with head.server() as server:
        for number in range(jobs):
            server.submit({"job": job}, name=f"short-{number}", tags=[], key=None)


def _wait(ledger: Ledger, jobs: int) -> None:
    while (ended := ledger.runs.counts()[RunState.ENDED]) < jobs:
        print(f"{ended} of {jobs} have ended", end="\r", file=sys.stderr, flush=True)
        time.sleep(2.0)


def _gaps(ledger: Ledger) -> tuple[list[float], int]:
    """Idle times of all slots while jobs waited, and how many runs did not end well."""
    with ledger._database.transaction() as session:  # noqa: SLF001 - what no command shows
        rows = session.exec(
            select(LeaseGpuRow.uuid, LeaseRow.granted_at, LeaseRow.released_at).join(
                LeaseRow, col(LeaseRow.lease_id) == col(LeaseGpuRow.lease_id)
            )
        ).all()
        runs = session.exec(select(RunRow.submitted_at, RunRow.exit_kind)).all()
    first = min(submitted for submitted, _ in runs)
    last = max(granted for _, granted, _ in rows)
    slots: dict[str, list[tuple[datetime, datetime]]] = {}
    for uuid, granted, released in rows:
        slots.setdefault(uuid, []).append((granted, released or last))
    gaps = [gap for leases in slots.values() for gap in _of_slot(sorted(leases), first, last)]
    return gaps, sum(kind != "ok" for _, kind in runs)


def _of_slot(
    leases: Sequence[tuple[datetime, datetime]], first: datetime, last: datetime
) -> list[float]:
    ends = [first, *(released for _, released in leases)]
    begins = [*(granted for granted, _ in leases), last]
    return [
        (begin - end).total_seconds()
        for end, begin in zip(ends, begins, strict=True)
        if begin > end
    ]


if __name__ == "__main__":
    main()
