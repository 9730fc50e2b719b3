"""Starting the node's fork server, and having it fork a process."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from headway.errors import HeadwayError

ENGINE = ("flows.engine",)
"""The module that a flow process runs."""

PRELOAD = (
    *ENGINE,
    "prefect.task_engine",
    "fastapi.encoders",  # Prefect encodes a flow's parameters with it
    "flows.train",
    "headway.runtime.docker.containers",
    # What these would import themselves only when they are first used:
    "psycopg",
    "anyio._backends._asyncio",
    "prefect.utilities.visualization",
)
"""What the fork server imports once, so that no run waits or pays for it."""

PRELOAD_ENV = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""With it numpy starts no threads: a process that has some must not fork. And a process of many
threads that wait keeps no memory for each of them."""

_PEER = (socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
AGAIN = b"again"
"""The server's answer when its code changed: its successor is listening already."""
_KILLED_S = 10.0
_ANSWER_S = 60.0
"""A server that is still importing answers within seconds, on a busy machine within many."""


class NotForked(HeadwayError):
    """There is no such process; *why*, as the fork server or the system says it."""

    def __init__(self, state_dir: Path, why: str) -> None:
        self.why = why
        log = state_dir / "fork.log"
        super().__init__(f"the fork server has started no process ({why}); see {log}")


class Forked(NamedTuple):
    """A process that the fork server has started."""

    pid: int
    pidfd: int
    """Readable once it has ended; whoever has it closes it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Python module to run in a forked process, as `python -m` does."""

    name: str
    """What `ps` calls it, behind "headway-"."""
    command: Sequence[str]
    """The module, then its arguments."""
    env: Mapping[str, str]
    """All of its environment."""
    log: str | None = None
    """Path of the file that its output is added to; without one nobody reads it."""

    def encoded(self) -> bytes:
        """As the fork server is given it."""
        return json.dumps(asdict(self), default=dict).encode()  # os.environ is no dict

    @classmethod
    def decoded(cls, text: bytes) -> Self:
        """What was `encoded`."""
        return cls(**json.loads(text))


def socket_address(directory_fd: int) -> str:
    """Address of the fork server's socket; short, however deep the state directory lies."""
    return f"/proc/self/fd/{directory_fd}/fork.sock"


def fork(state_dir: Path, program: Program) -> Forked:
    """Have the node's fork server fork a process of its own session that runs *program*.

    Raises:
        NotForked: It does not run, or refuses.
    """
    answer = b""
    for _ in range(2):  # again: a server may have been replaced
        answer, fds = _asked(state_dir, program)
        if fds:
            return Forked(int(answer), fds[0])
        if answer != AGAIN:
            break
    raise NotForked(state_dir, answer.decode() or "it ended before it answered")


def _asked(state_dir: Path, program: Program) -> tuple[bytes, list[int]]:
    try:
        with (
            os.fdopen(os.memfd_create("headway-request"), "wb") as request,
            _connected(state_dir, _ANSWER_S) as connection,
        ):
            request.write(program.encoded())
            request.flush()
            socket.send_fds(connection, [b"run"], [request.fileno()])
            answer, fds, _, _ = socket.recv_fds(connection, 1024, 1)
            return answer, fds
    except ConnectionResetError:  # it was replaced before it heard
        return AGAIN, []
    except OSError as error:
        raise NotForked(state_dir, str(error)) from error


@contextmanager
def _connected(state_dir: Path, timeout_s: float) -> Iterator[socket.socket]:
    directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(timeout_s)
            connection.connect(socket_address(directory))
            yield connection
    finally:
        os.close(directory)


def start_server(state_dir: Path, preload: Sequence[str], env: Mapping[str, str]) -> int:
    """Start the node's fork server, unless it runs already.

    Cheap when it runs (one connect): call it in a loop to keep one running.
    It listens at once and imports afterwards; who asks meanwhile waits.

    Args:
        state_dir: Where its socket, log and locks lie.
        preload: Modules to import, such as ``flows.train``. One that cannot be
            imported is left to the forked process, which then shows the error.
        env: The server's environment. A forked process gets its own, but
            what the preloaded modules read at import comes from here.

    Returns:
        The server's pid.

    Raises:
        HeadwayError: It did not start.
    """
    if (pid := running_server(state_dir)) is not None:
        return pid
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(50):
        spawn(state_dir, preload, env)
        if (pid := running_server(state_dir)) is not None:
            return pid
        time.sleep(0.1)  # another one won the race and is about to listen
    raise HeadwayError(
        f"the process that starts runs did not start, so no run can; see {state_dir / 'fork.log'}"
    )


def running_server(state_dir: Path) -> int | None:
    """Pid of the fork server that listens below *state_dir*; None when there is none."""
    try:
        with _connected(state_dir, 1.0) as connection:
            return int(struct.unpack("3i", connection.getsockopt(*_PEER))[0])
    except OSError:
        return None


def end_server(state_dir: Path) -> None:
    """Kill the fork server that listens below *state_dir*, if any; what it has forked goes on."""
    if (pid := running_server(state_dir)) is not None:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.kill()
            process.wait(_KILLED_S)


def spawn(state_dir: Path, preload: Sequence[str], env: Mapping[str, str]) -> None:
    """Run the server's launcher; it returns once the server listens, or lost the race."""
    with (state_dir / "fork.log").open("ab") as log:
        subprocess.run(
            [sys.executable, "-P", "-m", "headway.node.forkserver", str(state_dir), *preload],
            env={name: value for name, value in env.items() if not name.startswith("PREFECT__")},
            cwd=state_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            timeout=30,
        )
