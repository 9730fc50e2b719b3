"""How soon is a cancelled run dead where Prefect's server or the node's worker has just died?

    python benchmarks/faults/cancel_after_outage.py [--times 10] [--away 60]

Each time the server is killed and kept away: one run is cancelled right before that, through
Prefect, and one while it is away, by `headway cancel`. Then the worker is killed and a third run is
cancelled at once. A program is dead when nobody holds its lock any more; it obeys SIGTERM.
"""

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from headway.model.run import ExitKind  # noqa: E402 - from the project's root
from headway.node.daemon import supervisor_daemon  # noqa: E402
from tests.support.kills import kill, until_all_are_back  # noqa: E402
from tests.support.promises import Watched  # noqa: E402
from tests.support.site import live_site, wait_for  # noqa: E402

WITHIN_S = 15.0
FOREVER_S = 3_600.0


class Outages:
    """What is done to one live site, and when its runs were dead."""

    def __init__(self, watched: Watched, away_s: float) -> None:
        self._watched = watched
        self._site = watched.site
        self._away_s = away_s
        self.before: list[float] = []
        """Cancelled right before: dead so long after the server answered again, or 0."""
        self.during: list[float] = []
        """Cancelled in the outage: dead so long after the command."""
        self.told: list[float] = []
        """And Prefect says so, so long after it answered again."""
        self.without_worker: list[float] = []
        self.wrong: list[str] = []

    def __str__(self) -> str:
        """The seconds that were measured last."""
        named = {"before": self.before, "during": self.during, "told": self.told}
        named["without worker"] = self.without_worker
        return ", ".join(f"{name} {times[-1]:.1f}" for name, times in named.items() if times)

    def of_the_server(self, number: int) -> None:
        """Cancel one run right before the outage, and one in it."""
        before, during = (self._begun(f"{word}-{number}") for word in ("before", "during"))
        with self._server_away():
            self._cancel(before)
            kill(self._watched.settings, "server", random.Random())
            killed_s = time.monotonic()
            cancelled_s = self._cancel(during)
            self.during.append(self._dead_s(during) - cancelled_s)
            dead_s = None
            while time.monotonic() < killed_s + self._away_s:
                if dead_s is None and not self._watched.alive(before):
                    dead_s = time.monotonic()
                time.sleep(0.05)
        with self._site.server() as server:
            wait_for(server.is_healthy, lambda: "the server does not come back")
            back_s = time.monotonic()
            self.before.append(max((dead_s or self._dead_s(before)) - back_s, 0.0))
            self._check([before, during])
            self.told.append(time.monotonic() - back_s)

    def of_the_worker(self, number: int) -> None:
        """Cancel a run whose worker has just died."""
        run_id = self._begun(f"worker-{number}")
        kill(self._watched.settings, "worker", random.Random())
        cancelled_s = self._cancel(run_id)
        self.without_worker.append(self._dead_s(run_id) - cancelled_s)
        self._check([run_id])
        until_all_are_back(self._watched.settings, ["worker"])

    def _begun(self, name: str) -> str:
        run_id = self._watched.submit(name, FOREVER_S)
        wait_for(lambda: self._watched.alive(run_id), lambda: f"{name} does not begin")
        return run_id

    def _cancel(self, run_id: str) -> float:
        """Cancel a run as its user does; when that was asked for."""
        asked_s = time.monotonic()
        done = self._site.run("cancel", run_id)
        if done.returncode:
            self.wrong.append(f"headway cancel {run_id}: {done.stderr}")
        return asked_s

    def _dead_s(self, run_id: str) -> float:
        wait_for(lambda: not self._watched.alive(run_id), lambda: f"{run_id} lives on")
        return time.monotonic()

    @contextmanager
    def _server_away(self) -> Iterator[None]:
        """Nobody brings the server back."""
        supervisor = supervisor_daemon(self._watched.settings).process()
        if supervisor is None:
            raise RuntimeError("the site has no supervisor")
        os.kill(supervisor.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(supervisor.pid, signal.SIGCONT)

    def _check(self, run_ids: Sequence[str]) -> None:
        """Wait until nothing is left of them, and Prefect says what the ledger says."""
        self.wrong += self._watched.broken(list(run_ids), ended=ExitKind.CANCELLED)


def spread(times: Sequence[float]) -> str:
    """The shortest, the middle and the longest of *times*."""
    return f"{min(times):.1f} / {statistics.median(times):.1f} / {max(times):.1f} s"


def main() -> int:
    """Kill, cancel, look; print three rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--away", type=float, default=60.0, help="seconds without a server")
    asked = parser.parse_args()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as scratch:
        Path(scratch).chmod(0o711)
        with live_site(Path(scratch) / "home", "process") as site:
            seen = Outages(Watched(site), asked.away)
            for number in range(asked.times):
                for step in (seen.of_the_server, seen.of_the_worker):
                    step(number)
                    print(f"{number + 1} of {asked.times}: {seen}", file=sys.stderr, flush=True)
    print("\n".join(seen.wrong), file=sys.stderr)
    goal, times = f"dead within {WITHIN_S:.0f} s", f"{asked.times} times"
    away = f"the server {asked.away:.0f} s away"
    print(
        f"\n| cancelled with {away} | {goal} | {times}, {spread(seen.during)} (min/median/max) |\n"
        f"| cancelled right before, {away} | {goal} of its return | {times}, "
        f"{spread(seen.before)}; Prefect says so {max(seen.told):.1f} s after it at most |\n"
        f"| cancelled when the worker was killed | {goal} | {times}, "
        f"{spread(seen.without_worker)}; {len(seen.wrong)} wrong; "
        f"{time.monotonic() - begun_s:.0f} s |"
    )
    longest_s = max(*seen.during, *seen.before, *seen.without_worker)
    return int(bool(seen.wrong) or longest_s > WITHIN_S)


if __name__ == "__main__":
    sys.exit(main())
