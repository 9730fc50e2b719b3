"""Starting the node's fork server, and the command that starts flow runs through it."""

import os
import shlex
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.errors import HeadwayError
from headway.node import flowrun

_PEER = (socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))


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
        HeadwayError: It did not start; runs start the slow way until it does.
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
        f"the fork server does not start; see {state_dir / 'fork.log'}. "
        "Flow runs start without it, a second or two slower each"
    )


def running_server(state_dir: Path) -> int | None:
    """Pid of the fork server that listens below *state_dir*; None when there is none."""
    directory = -1
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(1.0)
        try:
            directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
            connection.connect(flowrun.socket_address(directory))
        except OSError:
            return None
        finally:
            if directory >= 0:
                os.close(directory)
        return int(struct.unpack("3i", connection.getsockopt(*_PEER))[0])


def stub_command(state_dir: Path) -> str:
    """The job variable `command` that starts flow runs through the fork server."""
    return shlex.join([sys.executable, "-I", "-S", flowrun.__file__, str(state_dir)])


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
