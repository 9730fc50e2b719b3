"""Kills of whoever writes to the ledger, at random moments of its transactions.

    python benchmarks/faults/ledger_kills.py [--kills 10000] [--seed 1]

Each kill is one process that goes on with five runs on two nodes by what the ledger says, and
dies before or after a statement or a commit. After each the promises are looked at; a run that
is over makes room for the next one, and those that are left at the end are brought to theirs.
"""

import argparse
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from headway.ledger import Ledger  # noqa: E402 - from the project's root
from tests.support import ledger_faults as faults  # noqa: E402
from tests.support import postgresql  # noqa: E402
from tests.support.on_ledger import enqueue  # noqa: E402

AT_ONCE = 5


def main() -> int:
    """A row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with postgresql.server() as server:
        return int(show(postgresql.new_database(server), asked) > 0)


def show(url: str, asked: argparse.Namespace) -> int:
    """Kill and look; print a row."""
    begun = time.monotonic()
    over, found = 0, []
    ledger = Ledger.open(url)
    faults.prepare(ledger)
    # Every statement is compiled once here, and never again in the processes that are killed.
    prepared = [_new(ledger, -1 - each) for each in range(AT_ONCE)]
    faults.bring_to_their_end(ledger, prepared, random.Random(asked.seed))
    current = [_new(ledger, each) for each in range(AT_ONCE)]
    for number in range(asked.kills):
        faults.killed_once(ledger, current, asked.seed * 1_000_003 + number)
        found += faults.broken(ledger, current)
        seen = ledger.runs.of(current)
        done = [each for each, run in seen.items() if faults.is_over(ledger, run)]
        current = [each for each in current if each not in done]
        current += [_new(ledger, AT_ONCE + over + each) for each in range(len(done))]
        over += len(done)
        if not number % 100:
            print(f"\r{number} kills, {over} runs over, {len(found)} violations",
                  end="", file=sys.stderr, flush=True)  # fmt: skip
    faults.bring_to_their_end(ledger, current, random.Random(asked.seed))
    ledger.close()
    print("\n".join(found[:20]), file=sys.stderr)
    print(
        f"| random kill points in the ledger | 10,000, 0 violations "
        f"| {asked.kills} kills, {over} runs to their end: {len(found)} violations; "
        f"{time.monotonic() - begun:.0f} s |",
        flush=True,
    )
    return len(found)


def _new(ledger: Ledger, number: int) -> str:
    run_id = f"run-{number}"
    enqueue(ledger, run_id)
    return run_id


if __name__ == "__main__":
    sys.exit(main())
