"""One flow process a run: `hold_flow` for the flow, `live_flow` for whoever asks.

The kernel releases the lock when the process dies, however it dies; so a lock
that is held is proof of a live flow, and nothing else is.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headway.clock import Clock
from headway.durable import lock_file
from headway.errors import HeadwayError

FENCED = 75
"""Exit status (EX_TEMPFAIL) of a second flow process of a run whose first one lives."""
_SETTLED_S = 2.0
KEPT_LOCKS_S = 7 * 86_400.0
"""Lock files of flow runs that ended longer ago are removed."""


class FlowAlive(HeadwayError):
    """Another process is at work on this run; a second one must not start."""

    def __init__(self, run_id: str, pid: int | None) -> None:
        self.run_id = run_id
        self.pid = pid
        super().__init__(f"run {run_id} has a live flow process already (pid {pid or 'unknown'})")


def lock_flow(state_dir: str | os.PathLike[str], run_id: str) -> int | None:
    """Make this process the only one of flow run *run_id* on this node.

    The lock lies in ``STATE_DIR/flows/RUN_ID.lock``, which holds the owner's
    pid; the kernel gives it back when the process is gone, however it ended.

    Returns:
        The descriptor that holds the lock, or None when another process does.
    """
    Path(state_dir, "flows").mkdir(mode=0o700, parents=True, exist_ok=True)
    path = _lock_path(state_dir, run_id)
    for _ in range(20):  # a probe by `live_flow` holds the lock for microseconds
        if (fd := lock_file(path)) is not None:
            os.ftruncate(fd, 0)
            os.write(fd, b"%d\n" % os.getpid())
            return fd
        time.sleep(0.01)
    return None


def live_flow(state_dir: str | os.PathLike[str], run_id: str) -> int | None:
    """Pid of the process that runs flow run *run_id* on this node; None when there is none."""
    pid = None
    for _ in range(20):
        try:
            fd = os.open(_lock_path(state_dir, run_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            fields = os.read(fd, 64).split()
            pid = int(fields[0]) if fields else None
            if len(fields) == 1:
                return pid
        finally:
            os.close(fd)
        time.sleep(0.01)  # without pid or with an exit status: the owner is coming or going
    return pid


def _lock_path(state_dir: str | os.PathLike[str], run_id: str) -> Path:
    return Path(state_dir, "flows", f"{run_id.replace('/', '_')}.lock")


def status_of(state_dir: Path, run_id: str, pid: int) -> int:
    """How the flow process *pid* ended: as it noted itself, else as one that was killed."""
    with suppress(OSError, ValueError):
        noted, status = map(int, _lock_path(state_dir, run_id).read_bytes().split())
        if noted == pid:
            return status
    return -signal.SIGKILL


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
    lock = None if owner is not None else lock_flow(state_dir, run_id)
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
