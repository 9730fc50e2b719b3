"""Many short jobs while the worker is killed every 20 s; with --every 0 the same in peace.

    python benchmarks/faults/short_jobs_killed.py [--jobs 2000] [--every 20]

Prints runs a second and what was broken.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from headway.model.run import RunState  # noqa: E402 - from the project's root
from tests.support.kills import kill  # noqa: E402
from tests.support.promises import Watched, counted  # noqa: E402
from tests.support.site import live_site  # noqa: E402


def main() -> int:
    """Submit, kill, wait, look; print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--patience", type=float, default=7_200.0)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    per_s, kills, broken = _run(asked.jobs, asked.every, asked.patience)
    print("\n".join(broken[:40]), file=sys.stderr)
    how = f"a worker killed every {asked.every:.0f} s" if asked.every else "nothing killed"
    print(
        f"\n| short jobs, {how} | 2,000, no invariant broken | {asked.jobs} jobs, {kills} kills: "
        f"{counted(broken)}; {per_s:.2f} runs/s; {time.monotonic() - begun_s:.0f} s |"
    )
    return int(bool(broken))


def _run(jobs: int, every_s: float, patience_s: float) -> tuple[float, int, list[str]]:
    """Runs a second, how often the worker was killed, and what was broken."""
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as scratch:
        Path(scratch).chmod(0o711)
        with live_site(Path(scratch) / "home", "process") as site:
            watched, over, kills = Watched(site), threading.Event(), [0]

            def kill_again_and_again() -> None:
                while every_s and not over.wait(every_s):
                    kills[0] += kill(watched.settings, "worker", random.Random())

            killer = threading.Thread(target=kill_again_and_again)
            killer.start()
            begun = time.monotonic()
            try:
                for number in range(jobs):
                    watched.submit(f"short-{number}", 0.0)
                    _say(f"{number + 1} of {jobs} submitted, {kills[0]} kills")
                ended = watched.until_ended(watched.runs, patience_s)
            finally:
                over.set()
                killer.join()
            took_s = time.monotonic() - begun
            well = sum(each.state is RunState.ENDED for each in ended.values())
            return well / took_s, kills[0], watched.broken(watched.runs)


def _say(words: str) -> None:
    print(f"\r{words}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
