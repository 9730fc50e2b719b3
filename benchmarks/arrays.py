"""What an array costs: a look at the queue beside that of one run, and many members on a real site.

    python benchmarks/arrays.py [--members 1000] [--passes 100]
    python benchmarks/arrays.py --live 1000 [--patience 3000]

The first prints how long a worker takes for one look at a queue on PostgreSQL in which one run
waits, an array, an array of which half has ended, and as many runs. The second brings a site up
without an engine, submits an array of programs that do nothing, and prints how many ended well,
how many were lost or doubled, and how many of it waited at once.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sqlmodel import Session  # noqa: E402

from headway.clock import SystemClock  # noqa: E402
from headway.ledger import Ledger  # noqa: E402
from headway.ledger.records import ArrayRecord  # noqa: E402
from headway.ledger.tables import RunRow  # noqa: E402
from headway.model.array import Array  # noqa: E402
from headway.model.lease import Demand, Lease  # noqa: E402
from headway.model.node import Capacity, Node  # noqa: E402
from headway.model.run import ExitKind, Prediction, RunState  # noqa: E402
from headway.settings import Settings  # noqa: E402
from headway.site import Site  # noqa: E402
from headway.units import GIB  # noqa: E402
from tests.support import postgresql  # noqa: E402
from tests.support.leading import admit_in_term, leading  # noqa: E402
from tests.support.site import live_site, sleeper  # noqa: E402

DEMAND = Demand(16 * GIB)
JOB = {"name": "sweep", "image": "i:1", "command": ["true"]}
WHOSE: dict[str, Any] = {"owner": "me", "team": "default", "pool": "gpu", "queue": "default"}


def main() -> None:
    """Measure one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=100)
    parser.add_argument("--live", type=int, default=0, help="members of an array on a real site")
    parser.add_argument("--patience", type=float, default=3000.0)
    asked = parser.parse_args()
    if asked.live:
        live(asked.live, asked.patience)
        return
    print("| in the queue | rows that wait | median look, ms | longest, ms |")
    print("|---|---|---|---|", flush=True)
    with postgresql.server() as server, tempfile.TemporaryDirectory() as home:
        for name, fill in FILLS.items():
            url = postgresql.new_database(server)
            looks_ms, rows = looks(url, Path(home) / str(hash(name)), fill, asked)
            median, longest = statistics.median(looks_ms), max(looks_ms)
            print(f"| {name} | {rows} | {median:.1f} | {longest:.1f} |", flush=True)


def looks(
    url: str, home: Path, fill: Callable[[Ledger, int], None], asked: argparse.Namespace
) -> tuple[list[float], int]:
    """Milliseconds of each look but the first, and how many rows waited."""
    settings = Settings(home=home, runtime="process", node="n0", ledger_url=url)  # type: ignore[arg-type]
    site = Site(settings, SystemClock())
    node = Node("n0", "gpu", Capacity(8, 16 * GIB))
    site.ledger.nodes.register(node, boot_id="b", worker_token="w")
    run(site.ledger, UUID(int=1), RunState.WAITING)
    held = admit_in_term(site.ledger, str(UUID(int=1)), "n0", DEMAND, ttl_s=3600)
    assert isinstance(held, Lease)
    fill(site.ledger, asked.members)
    queue, found = leading(site), []
    for _ in range(asked.passes + 1):
        begun_s = time.perf_counter()
        queue.run_pass()
        found.append(1000 * (time.perf_counter() - begun_s))
    rows = len(site.ledger.runs.waiting("gpu"))
    site.ledger.close()
    return found[1:], rows


def run(
    ledger: Ledger, run_id: UUID, state: RunState, member: tuple[str, int] | None = None
) -> None:
    """Put a run into the ledger."""
    ended = state is RunState.ENDED
    row = RunRow(
        run_id=str(run_id), name="sweep", job=JOB, state=state, submitted_at=ledger.now(),
        prediction=Prediction(600.0, 300.0, 1200.0), demand=DEMAND, **WHOSE,
        array_id=member and member[0], array_index=member and member[1],
        ended_at=ledger.now() if ended else None, exit_kind=ExitKind.OK if ended else None,
    )  # fmt: skip
    with Session(ledger.pools._database.engine) as session:  # noqa: SLF001
        session.add(row)
        session.commit()


def one_run(ledger: Ledger, _members: int) -> None:
    """A run."""
    run(ledger, UUID(int=2), RunState.WAITING)


def an_array(ledger: Ledger, members: int) -> None:
    """An array of which nothing has started."""
    run(ledger, UUID(int=2), RunState.WAITING, (added(ledger, members).array_id, 1))


def half_an_array(ledger: Ledger, members: int) -> None:
    """An array of which half has ended."""
    array = added(ledger, members)
    for index in range(1, members // 2):
        run(ledger, UUID(int=index + 2), RunState.ENDED, (array.array_id, index))
    run(ledger, UUID(int=2), RunState.WAITING, (array.array_id, members // 2))


def many_runs(ledger: Ledger, members: int) -> None:
    """As many runs as an array has members."""
    for number in range(members):
        run(ledger, UUID(int=number + 2), RunState.WAITING)


def added(ledger: Ledger, members: int) -> ArrayRecord:
    """An array in the ledger."""
    grid = Array({"seed": tuple(range(members))})
    return ledger.arrays.add(JOB, grid, name="sweep", key=None, submitted_at=ledger.now(), **WHOSE)


FILLS = {
    "one run": one_run,
    "an array": an_array,
    "an array, half of it ended": half_an_array,
    "as many runs": many_runs,
}


def live(members: int, patience_s: float) -> None:
    """An array of *members* on a site of its own; prints what became of it."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        Path(scratch).chmod(0o711)
        with live_site(Path(scratch) / "home", "process") as site:
            job = Path(scratch) / "array.json"
            job.write_text(json.dumps(sleeper(1) | {"name": "many", "command": ["true"]}))
            begun_s = time.monotonic()
            words = ("--array", f"seed=1..{members}")
            array_id = site.json("submit", str(job), *words)["array_id"]
            handed_in_s = time.monotonic() - begun_s
            with closing(Ledger.open(site.ledger_url())) as ledger:
                most = followed(ledger, array_id, members, begun_s + patience_s)
                took_s = time.monotonic() - begun_s
                runs = ledger.arrays.members(array_id)
                exits = Counter(each.exit.kind if each.exit else each.state for each in runs)
                indices = Counter(each.array_index for each in runs)
            print("| members | submitted | well | lost | doubled | most that waited | runs/s |")
            print("|---|---|---|---|---|---|---|")
            doubled = sum(number - 1 for number in indices.values())
            print(
                f"| {members} | {handed_in_s:.2f} s | {exits[ExitKind.OK]} "
                f"| {members - len(indices)} | {doubled} | {most} | {len(runs) / took_s:.2f} |"
            )


def followed(ledger: Ledger, array_id: str, members: int, until_s: float) -> int:
    """Wait until all have ended; the most rows of it that were seen to wait at once."""
    most = 0
    while time.monotonic() < until_s:
        counts = ledger.arrays.counts([array_id])[array_id]
        most = max(most, counts.waiting)
        print(f"{counts}", end="\r", file=sys.stderr, flush=True)
        if counts.ended_well + counts.failed + counts.cancelled == members:
            break
        time.sleep(0.5)
    return most


if __name__ == "__main__":
    main()
