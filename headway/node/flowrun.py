"""The command of a flow run: has the fork server start the engine, and stands in for it.

Prefect's worker starts this file once a run, as ``python -I -S flowrun.py
STATE_DIR``. It hands its environment, working directory, umask and standard
streams to the fork server (`headway.node.forkserver`), passes SIGTERM and SIGINT on
to the flow process, and ends as that process ends. Killed alone, it leaves the
flow running; killed after it was asked to stop, it takes the flow along, as
Prefect's hard kill expects. Where no server answers it becomes the engine
itself: slow, but right.

It must start in milliseconds: only the standard library, nothing of headway,
no pathlib.
"""

import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

ENGINE = "prefect.engine"
"""What a flow process runs as `__main__`."""
FENCED = 75
"""Exit status (EX_TEMPFAIL) of a second start of a run whose first start still lives."""
AGAIN = b"again"
"""The server's answer when its code changed: its successor is listening already."""
STOP = b"stop"
"""The stub's note to the server that the flow was asked to stop."""
ANSWER_S = 20.0
"""A server that is still importing answers within a few seconds; then the stub goes alone."""
FORWARDED = (signal.SIGTERM, signal.SIGINT)


def socket_address(directory_fd: int) -> str:
    """Address of the fork server's socket; short, however deep the state directory lies."""
    return f"/proc/self/fd/{directory_fd}/fork.sock"


def lock_flow(state_dir: str, run_id: str) -> int | None:
    """Make this process the only one of flow run *run_id* on this node.

    The lock lies in ``STATE_DIR/flows/RUN_ID.lock``, which holds the owner's
    pid; the kernel gives it back when the process is gone, however it ended.

    Returns:
        The descriptor that holds the lock, or None when another process does.
    """
    os.makedirs(f"{state_dir}/flows", mode=0o700, exist_ok=True)
    path = _lock_path(state_dir, run_id)
    for _ in range(20):  # a probe by `live_flow` holds the lock for microseconds
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                os.ftruncate(fd, 0)
                os.write(fd, b"%d\n" % os.getpid())
                return fd
        except (BlockingIOError, FileNotFoundError):  # held, or pruned since it was opened
            pass
        os.close(fd)
        time.sleep(0.01)
    return None


def live_flow(state_dir: str | os.PathLike[str], run_id: str) -> int | None:
    """Pid of the process that runs flow run *run_id* on this node; None when there is none."""
    pid = None
    for _ in range(20):
        try:
            fd = os.open(_lock_path(os.fspath(state_dir), run_id), os.O_RDWR | os.O_CLOEXEC)
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


def _lock_path(state_dir: str, run_id: str) -> str:
    return f"{state_dir}/flows/{run_id.replace('/', '_')}.lock"


def _main(state_dir: str) -> NoReturn:
    early: list[int] = []
    _on_stop(lambda signum, _: early.append(signum))
    started = _start(state_dir) or _start(state_dir)  # again: a server may have been replaced
    if isinstance(started, str):
        if early:
            _end_as(-early[0])
        _become_engine(state_dir, started)
    connection, pid, pidfd = started

    def forward(signum: int, _: FrameType | None) -> None:
        with suppress(OSError):
            connection.send(STOP)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signum)

    _on_stop(forward)
    for signum in early:
        forward(signum, None)
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    ended.poll()
    _end_as(_exit_status(state_dir, connection, pid))


def _on_stop(handler: Callable[[int, FrameType | None], object]) -> None:
    for signum in FORWARDED:
        signal.signal(signum, handler)


def _start(state_dir: str) -> tuple[socket.socket, int, int] | str:
    """Have the server fork a flow process.

    Returns:
        The connection, the pid and a pidfd of the flow process; or why there is
        none, empty when it is worth asking once more.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(ANSWER_S)
    try:
        directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
        connection.connect(socket_address(directory))
        socket.send_fds(connection, [b"run"], [_request(), 0, 1, 2])
        answer, fds, _, _ = socket.recv_fds(connection, 1024, 1)
    except OSError as error:
        return str(error)
    if fds:
        return connection, int(answer), fds[0]
    return "" if answer == AGAIN else answer.decode() or "it ended before it answered"


def _request() -> int:
    """A memory file of NUL-separated fields: cwd, umask, then the environment."""
    umask = os.umask(0)
    os.umask(umask)
    environment = [name + b"=" + value for name, value in os.environb.items()]
    fd = os.memfd_create("headway-request")
    with open(fd, "wb", closefd=False) as file:
        file.write(b"\0".join([os.getcwdb(), b"%o" % umask, *environment]))
    return fd


def _exit_status(state_dir: str, connection: socket.socket, pid: int) -> int:
    """How the flow process *pid* ended, as `subprocess` counts: negative for a signal."""
    connection.settimeout(5.0)
    with suppress(OSError):
        if message := connection.recv(64):
            return int(message)
    # The server, its parent, is gone: what the process noted itself must do.
    with suppress(OSError):
        with open(_lock_path(state_dir, os.environ.get("PREFECT__FLOW_RUN_ID", "")), "rb") as file:
            fields = file.read(64).split()
        if len(fields) == 2 and int(fields[0]) == pid:
            return int(fields[1])
    return -signal.SIGKILL


def _end_as(status: int) -> NoReturn:
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)


def _become_engine(state_dir: str, reason: str) -> NoReturn:
    sys.stderr.write(
        f"headway: no fork server answers below {state_dir} ({reason or 'it was replaced twice'}); "
        "this run starts the engine itself, which takes a second or two longer\n"
    )
    if run_id := os.environ.get("PREFECT__FLOW_RUN_ID"):
        lock = lock_flow(state_dir, run_id)
        if lock is None:
            sys.stderr.write(fenced_message(run_id))
            os._exit(FENCED)
        os.set_inheritable(lock, True)
    for signum in FORWARDED:
        signal.signal(signum, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-m", ENGINE])  # noqa: S606 - no shell is meant


def fenced_message(run_id: str) -> str:
    """What a second start says before it ends."""
    return (
        f"headway: flow run {run_id} already has a live process on this node; "
        "this second start ends without running anything\n"
    )


if __name__ == "__main__":
    _main(sys.argv[1])
