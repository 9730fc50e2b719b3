"""Calls of the ledger that are committed and reported as failed, one in twenty.

    python benchmarks/faults/lost_answers.py [--jobs 5000] [--seed 1]
    python benchmarks/faults/lost_answers.py --stack [--jobs 200]

In the ledger each call is repeated as by a process that was told that it had failed, over one to
three attempts a job; in the end everything must have been written exactly once. With --stack
every process of a live site loses the answers: flows, worker, guard.
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
from tests.support import ledger_faults as faults  # noqa: E402
from tests.support import lost_answers, postgresql  # noqa: E402
from tests.support.promises import Watched, counted  # noqa: E402
from tests.support.site import live_site  # noqa: E402

SHARE = 0.05
EVERYWHERE = f"""\
import random, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.ledger_faults import lose_answers
lose_answers({SHARE}, random.randrange(2**32))
"""


def main() -> int:
    """A row for the ledger, or one for the stack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stack", action="store_true", help="through a live site")
    parser.add_argument("--patience", type=float, default=1800.0)
    asked = parser.parse_args()
    if asked.stack:
        return _stack(asked.jobs or 200, asked.patience)
    return _ledger(asked.jobs or 5_000, asked.seed)


def _ledger(jobs: int, seed: int) -> int:
    begun, chance, wanted = time.monotonic(), random.Random(seed), []
    with postgresql.server() as server:
        ledger = Ledger.open(postgresql.new_database(server))
        faults.prepare(ledger)
        with faults.commits_reported_failed(SHARE, seed) as lost:
            for number in range(jobs):
                wanted.append(lost_answers.carry_out(ledger, f"lost-{number}", chance))
                if not number % 50:
                    _say(f"{number} jobs, {lost[0]} answers lost")
        doubled = [amiss for each in wanted for amiss in lost_answers.doubled(ledger, each)]
        ledger.close()
    print("\n".join(doubled[:20]), file=sys.stderr)
    print(
        f"| commits reported failed | 5,000 jobs, 0 doubled | {jobs} jobs, "
        f"{sum(each.attempts for each in wanted)} attempts, {lost[0]} answers lost: "
        f"{len(doubled)} doubled; {time.monotonic() - begun:.0f} s |",
        flush=True,
    )
    return int(bool(doubled))


def _stack(jobs: int, patience_s: float) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o711)
        (folder / "modules").mkdir()
        # Python runs it at the start of every process of the site, before anything of ours.
        (folder / "modules" / "sitecustomize.py").write_text(EVERYWHERE)
        modules = str(folder / "modules")
        with live_site(folder / "home", "process", PYTHONPATH=modules) as site:
            watched = Watched(site)
            for number in range(jobs):
                watched.submit(f"lost-{number}", 0.5)
                _say(f"{number + 1} of {jobs} submitted")
            watched.until_ended(watched.runs, patience_s)
            broken = watched.broken(watched.runs)
    print("\n".join(broken[:40]), file=sys.stderr)
    print(
        f"| commits reported failed, whole stack | 200 jobs, 0 doubled | {jobs} jobs, 5 % of the "
        f"ledger's calls: {counted(broken)}; {time.monotonic() - begun:.0f} s |"
    )
    return int(bool(broken))


def _say(words: str) -> None:
    print(f"\r{words}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
