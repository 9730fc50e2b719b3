"""What one pass of the scheduler takes as the queue grows: `python benchmarks/passes.py [COUNT …]`.

On a ledger with a node that is full, whose queue was planned and played before. Printed for each
number of runs that wait: the first pass of a scheduler that begins to lead, the median of the next
ones, and both in multiples of a pass over the shortest queue.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from pydantic import SecretStr

from benchmarks.questions import beat, fill
from headway.clock import SystemClock
from headway.ledger import Ledger
from headway.scheduler.queue import PoolQueue
from headway.settings import Settings
from headway.site import Site
from tests.support import postgresql

_PASSES = 21


def passes_s(url: str, folder: str, waiting: int) -> tuple[float, float]:
    """Seconds of the first pass, and of the median of the others."""
    settings = Settings(
        home=Path(folder), ledger_url=SecretStr(url), node="left", runtime="process"
    )
    site = Site(settings, SystemClock(), Ledger.open)
    fill(site, waiting)
    scheduler, took_s = PoolQueue(site), []
    for _ in range(_PASSES):
        beat(site)
        scheduler.contend(reaches_prefect=True)
        begun_s = time.monotonic()
        scheduler.run_pass()
        took_s.append(time.monotonic() - begun_s)
    return took_s[0], statistics.median(took_s[1:])


def main() -> None:
    """A row for each number of waiting runs."""
    counts = [int(each) for each in sys.argv[1:]] or [10, 100, 1000, 10_000]
    shortest_s = 0.0
    print("| waiting | first pass | the next ones | in multiples of the shortest queue's |")
    print("|---|---|---|---|")
    for count in counts:
        with postgresql.server() as server, tempfile.TemporaryDirectory() as folder:
            first_s, next_s = passes_s(postgresql.new_database(server), folder, count)
        shortest_s = shortest_s or next_s
        times = f"{first_s / shortest_s:.1f}, {next_s / shortest_s:.1f}"
        print(f"| {count:,} | {first_s:.3f} s | {next_s:.3f} s | {times} |", flush=True)


if __name__ == "__main__":
    main()
