"""One flow process a run: `hold_flow` for the flow, `live_flow` for whoever asks.

The kernel releases the lock when the process dies, however it dies; so a lock
that is held is proof of a live flow, and nothing else is.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headway.errors import HeadwayError
from headway.node.flowrun import live_flow, lock_flow

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


def prune_locks(state_dir: Path, now_s: float) -> None:
    """Remove the lock files of flow runs that ended long ago."""
    for path in (state_dir / "flows").glob("*.lock"):
        with suppress(OSError), path.open("rb") as file:
            if now_s - path.stat().st_mtime > KEPT_LOCKS_S:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
