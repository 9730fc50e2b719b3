"""Ways through the model of the lease protocol, carried out on the real ledger.

    python benchmarks/faults/ways.py [--ways 5000] [--seed 0]

Each way is some sixty random steps of two nodes and two runs with every fault that the model
has. After each step that asks something of the ledger it has to keep what the model has.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from headway.ledger import Ledger  # noqa: E402 - from the project's root
from tests.protocol.replay import replay_ways  # noqa: E402
from tests.support import postgresql  # noqa: E402


def main() -> int:
    """A row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first way")
    asked = parser.parse_args()
    with postgresql.server() as server:
        return int(show(postgresql.new_database(server), asked) > 0)


def show(url: str, asked: argparse.Namespace) -> int:
    """Go the ways until one diverges; print a row."""
    begun, ways, compared, diverged = time.monotonic(), 0, 0, ""
    ledger = Ledger.open(url)
    try:
        for calls in replay_ways(ledger, range(asked.seed, asked.seed + asked.ways)):
            ways, compared = ways + 1, compared + calls
            if not ways % 50:
                print(f"\r{ways} ways", end="", file=sys.stderr, flush=True)
    except AssertionError as error:
        diverged = str(error)
        print(f"\n{diverged}", file=sys.stderr)
    ledger.close()
    print(
        f"| ways through the model on the ledger | thousands, none diverges | {ways} "
        f"ways, {compared} steps compared: {int(bool(diverged))} diverged; "
        f"{time.monotonic() - begun:.0f} s |",
        flush=True,
    )
    return int(bool(diverged))


if __name__ == "__main__":
    sys.exit(main())
