"""Kills of each process of one busy site at random moments.

    python benchmarks/faults/kills.py [--kills 300] [--batch 30] [--seed 1] [--storm]

With --storm one or two processes at a time, each killed or stopped (SIGSTOP) for 10 to 70 s.

Short jobs are submitted all the time. After each batch of kills everything has to end well, and
60 s after the last actor is back nothing may be left: the four promises are looked at then.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.kills import kill_while_busy  # noqa: E402 - from the project's root
from tests.support.promises import Watched, counted  # noqa: E402
from tests.support.site import live_site  # noqa: E402


def main() -> int:
    """Kill, wait, look; print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--batch", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storm", action="store_true", help="stops, and two at a time")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for each batch")
    asked = parser.parse_args()
    chance, killed, broken, begun = random.Random(asked.seed), Counter(), [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as scratch:
        Path(scratch).chmod(0o711)
        with live_site(Path(scratch) / "home", "process") as site:
            watched, looked = Watched(site), 0
            while sum(killed.values()) < asked.kills:
                left = min(asked.batch, asked.kills - sum(killed.values()))
                batch_begun = time.monotonic()
                killed.update(kill_while_busy(watched, left, chance, _say, storm=asked.storm))
                batch, looked = watched.runs[looked:], len(watched.runs)
                watched.until_ended(batch, asked.patience)
                found = watched.broken(batch)
                broken += found
                took_s = time.monotonic() - batch_begun
                said = [f"\n{len(batch)} jobs of a batch: {counted(found)}; {took_s:.0f} s", *found]
                print("\n".join(said), file=sys.stderr, flush=True)
    each = ", ".join(f"{actor} {number}" for actor, number in sorted(killed.items()))
    what = "kills and stops, singly and in pairs," if asked.storm else "kills"
    print(
        f"| {what} in one busy site | 300, 0 lost, 0 twice, 0 left behind, 0 wrong in Prefect "
        f"| {sum(killed.values())} ({each}), {looked} jobs: {counted(broken)}; "
        f"{time.monotonic() - begun:.0f} s |"
    )
    return int(bool(broken))


def _say(words: str) -> None:
    print(f"\r{words}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
