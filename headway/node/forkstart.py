"""Starting the node's fork server, and having it fork a flow process."""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headway.errors import HeadwayError

_PEER = (socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
AGAIN = b"again"
"""The server's answer when its code changed: its successor is listening already."""
_ANSWER_S = 20.0
"""A server that is still importing answers within a few seconds."""


class NotForked(HeadwayError):
    """There is no flow process; *why*, as the fork server or the system says it."""

    def __init__(self, state_dir: Path, why: str) -> None:
        self.why = why
        log = state_dir / "fork.log"
        super().__init__(f"the fork server has started no flow process ({why}); see {log}")


class Forked(NamedTuple):
    """A flow process."""

    pid: int
    pidfd: int
    """Readable once it has ended; whoever has it closes it."""


def socket_address(directory_fd: int) -> str:
    """Address of the fork server's socket; short, however deep the state directory lies."""
    return f"/proc/self/fd/{directory_fd}/fork.sock"


def fork_flow(state_dir: Path, env: Mapping[str, str]) -> Forked:
    """Have the node's fork server fork a flow process with the environment *env*.

    Raises:
        NotForked: It does not run, or refuses.
    """
    answer = b""
    for _ in range(2):  # again: a server may have been replaced
        answer, fds = _asked(state_dir, env)
        if fds:
            return Forked(int(answer), fds[0])
        if answer != AGAIN:
            break
    raise NotForked(state_dir, answer.decode() or "it ended before it answered")


def _asked(state_dir: Path, env: Mapping[str, str]) -> tuple[bytes, list[int]]:
    request = os.memfd_create("headway-request")
    directory = -1
    try:
        with open(request, "wb", closefd=False) as file:
            file.write(b"\0".join(os.fsencode(f"{name}={text}") for name, text in env.items()))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_ANSWER_S)
            directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
            connection.connect(socket_address(directory))
            socket.send_fds(connection, [b"run"], [request])
            answer, fds, _, _ = socket.recv_fds(connection, 1024, 1)
            return answer, fds
    except ConnectionResetError:  # it was replaced before it heard
        return AGAIN, []
    except OSError as error:
        raise NotForked(state_dir, str(error)) from error
    finally:
        os.close(request)
        if directory >= 0:
            os.close(directory)


def start_server(state_dir: Path, preload: Sequence[str], env: Mapping[str, str]) -> int:
    """Start the node's fork server, unless it runs already.

    Cheap when it runs (one connect): call it in a loop to keep one running.
    It listens at once and imports afterwards; who asks meanwhile waits.

    Args:
        state_dir: Where its socket, log and locks lie.
        preload: Modules to import, such as ``flows.train``. One that cannot be
            imported is left to the flow process, which then shows the error.
        env: The server's environment. A flow process gets its own, but
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
        f"the fork server does not start, so no run does; see {state_dir / 'fork.log'}"
    )


def running_server(state_dir: Path) -> int | None:
    """Pid of the fork server that listens below *state_dir*; None when there is none."""
    directory = -1
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(1.0)
        try:
            directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
            connection.connect(socket_address(directory))
        except OSError:
            return None
        finally:
            if directory >= 0:
                os.close(directory)
        return int(struct.unpack("3i", connection.getsockopt(*_PEER))[0])


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
