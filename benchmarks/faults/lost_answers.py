"""Commits that are done but reported failed, and the writers that ask again.

    python benchmarks/faults/lost_answers.py [--jobs 5000] [--share 0.05] [--database sqlite]

Each job goes from its submission to its end, over one to three attempts, through the ledger
alone. At the end of it everything must have been written exactly once.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from headway.ledger import Ledger  # noqa: E402 - from the project's root
from tests.support import lost_answers, postgresql  # noqa: E402
from tests.support.ledger_faults import commits_reported_failed, prepare  # noqa: E402


def main() -> int:
    """A row for each database."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    bad = 0
    for database in asked.database or ["sqlite", "postgresql"]:
        if database == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                bad += show(database, f"sqlite:///{folder}/ledger.db", asked)
        elif reason := postgresql.why_none():
            print(f"| commits done but reported failed | 0 doubled | {reason} |")
        else:
            with postgresql.server() as server:
                bad += show(database, postgresql.new_database(server), asked)
    return int(bad > 0)


def show(database: str, url: str, asked: argparse.Namespace) -> int:
    """Carry the jobs out and look at each; print a row."""
    begun, found = time.monotonic(), []
    ledger, chance = Ledger.open(url), random.Random(asked.seed)
    prepare(ledger)
    with commits_reported_failed(asked.share, asked.seed) as lost:
        wanted = []
        for number in range(asked.jobs):
            wanted.append(lost_answers.carry_out(ledger, f"job-{number}", chance))
            if not number % 100:
                print(f"\r{database}: {number} jobs", end="", file=sys.stderr, flush=True)
    for each in wanted:
        found += lost_answers.doubled(ledger, each)
    ledger.close()
    print("\n".join(found[:20]), file=sys.stderr)
    print(
        f"| commits done but reported failed, {database} | {asked.jobs} jobs, 0 doubled "
        f"| {asked.jobs} jobs, {sum(each.attempts for each in wanted)} attempts, {lost[0]} answers "
        f"lost: {len(found)} doubled; {time.monotonic() - begun:.0f} s |",
        flush=True,
    )
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
