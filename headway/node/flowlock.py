"""One flow process a run: `hold_flow` for the flow, `live_flow` for whoever asks.

The kernel releases the lock when the process dies, however it dies; so a lock
that is held is proof of a live flow, and nothing else is.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headway.clock import Clock
from headway.errors import HeadwayError
from headway.node.flowrun import live_flow, lock_flow

_SETTLED_S = 2.0
KEPT_LOCKS_S = 7 * 86_400.0
"""Lock files of flow runs that ended longer ago are removed."""


class FlowAlive(HeadwayError):
    """Another process is at work on this run; a second one must not start."""

    def __init__(self, run_id: str, pid: int | None) -> None:
        self.run_id = run_id
        self.pid = pid
        super().__init__(f"run {run_id} has a live flow process already (pid {pid or 'unknown'})")


@contextmanager
def hold_flow(state_dir: Path, run_id: str) -> Iterator[None]:
    """Hold the run's lock while its flow is at work.

    A flow process that the fork server started holds it from its first moment;
    one that was started in another way takes it here.

    Raises:
        FlowAlive: Another process holds it.
    """
    owner = live_flow(state_dir, run_id)
    if owner == os.getpid():
        yield
        return
    lock = None if owner is not None else lock_flow(str(state_dir), run_id)
    if lock is None:
        raise FlowAlive(run_id, owner)
    try:
        yield
    finally:
        os.close(lock)


class LiveFlows:
    """The runs whose flow process is alive on this node.

    Locks lie there for days: one that was dead is asked about again only once it was written.
    """

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        """Of the node that keeps *state_dir*."""
        self._state_dir = state_dir
        self._clock = clock
        self._dead: dict[str, float] = {}

    def now(self) -> set[str]:
        """They, now."""
        written: dict[str, float] = {}
        for path in (self._state_dir / "flows").glob("*.lock"):
            with suppress(FileNotFoundError):  # it was pruned just now
                written[path.stem] = path.stat().st_mtime
        asked = {run_id for run_id, at_s in written.items() if self._dead.get(run_id) != at_s}
        alive = {run_id for run_id in asked if live_flow(self._state_dir, run_id) is not None}
        # One that is written in this moment would keep its time of writing.
        settled_s = self._clock.now().timestamp() - _SETTLED_S
        self._dead = {
            run_id: at_s
            for run_id, at_s in written.items()
            if run_id not in alive and at_s < settled_s
        }
        return alive


def prune_locks(state_dir: Path, now_s: float) -> None:
    """Remove the lock files of flow runs that ended long ago."""
    for path in (state_dir / "flows").glob("*.lock"):
        with suppress(OSError), path.open("rb") as file:
            if now_s - path.stat().st_mtime > KEPT_LOCKS_S:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
