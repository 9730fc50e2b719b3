"""Starts the processes of a node in milliseconds: forks them from one that has imported it all.

Flow processes and the site's own daemons (`forkstart.fork` asks for them) share the memory of
what was imported. One server a node, single-threaded, in its own session; what it has forked
survives it. Kill it at any time; the next `start_server` starts another, and meanwhile no run
starts.

When the code it has imported changes, it hands over to a successor, so that nothing
runs code older than its files at the moment of its start.
"""

import atexit
import gc
import importlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headway.clock import SystemClock
from headway.durable import lock_file
from headway.node.daemon import Daemon
from headway.node.flowlock import prune_locks
from headway.node.forkedprocess import ExitNote, prefect_environments, run_forked
from headway.node.forkstart import AGAIN, socket_address, spawn
from headway.node.imported import ImportedModules

TICK_S = 2.0
"""How often an idle server looks whether its code or its socket changed."""
_SPEAKS_S = 1.0
"""Within it, who has connected says what it wants; it does so at once, unless it is stopped."""

_log = logging.getLogger("headway.node.forkserver")


class _Server:
    """The loop that forks. Nothing in it may wait for long, or start a thread."""

    def __init__(self, state_dir: Path, preload: Sequence[str], lock: int) -> None:
        self.state_dir = state_dir
        self.preload = preload
        self.lock = lock
        self.refusal = b""
        self.daemon = Daemon("fork", state_dir)
        self.listener = self._listen()
        self.inode = self._socket_inode()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        directory = os.open(self.state_dir, os.O_PATH | os.O_DIRECTORY)
        fresh = f"{socket_address(directory)}.{os.getpid()}"
        umask = os.umask(0o177)
        listener.bind(fresh)
        os.umask(umask)
        listener.listen(64)
        Path(fresh).rename(socket_address(directory))
        os.close(directory)
        listener.settimeout(TICK_S)
        return listener

    def import_modules(self) -> None:
        """Import what children need, and remember which files that was."""
        usual = gc.get_threshold()
        gc.set_threshold(*usual[:2], 1000)  # full ones take a fifth of the time and find nothing
        for name in self.preload:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001 - whatever a module raises, the child will show it
                _log.exception("%s cannot be imported; who needs it imports it anew", name)
        if orm := sys.modules.get("sqlalchemy.orm"):
            orm.configure_mappers()  # else each child does, and shares none of it
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads != 1:
            names = ", ".join(thread.name for thread in threading.enumerate())
            self.refusal = (
                f"importing {' '.join(self.preload)} left {threads} threads running ({names}), "
                "and a process with threads must not fork"
            ).encode()[:1000]
            _log.error("%s", self.refusal.decode())
        self.imported = ImportedModules()
        gc.collect()
        gc.freeze()  # what is imported stays shared: a collection in a child must not touch it
        gc.set_threshold(*usual)

    def run(self) -> bytes | None:
        """Serve until another one does.

        Returns:
            None in the server; in each forked child, what it is asked to run.
        """
        while self._socket_inode() == self.inode:
            self.daemon.beat()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass  # whoever waits for one has its pidfd
            caller = self._next_caller()
            if self.imported.outdated():
                self._hand_over(caller)
                return None
            if caller is not None:
                with caller:
                    request = _heard(caller)
                    if request is not None and self._fork(caller):
                        return request
        _log.warning("another server took the socket, or it was removed; this one ends")
        return None

    def _next_caller(self) -> socket.socket | None:
        with suppress(OSError):
            caller, _ = self.listener.accept()
            caller.settimeout(_SPEAKS_S)
            return caller
        return None

    def _fork(self, caller: socket.socket) -> bool:
        """Fork for *caller*; whether this is the child."""
        if self.refusal:
            with suppress(OSError):
                caller.send(self.refusal)
            return False
        try:
            pid = os.fork()
        except OSError as error:
            _log.error("cannot fork: %s", error)
            return False
        if pid == 0:
            self.listener.close()
            os.close(self.lock)
            return True
        pidfd = os.pidfd_open(pid)
        with suppress(OSError):
            socket.send_fds(caller, [b"%d" % pid], [pidfd])
        os.close(pidfd)
        return False

    def _hand_over(self, caller: socket.socket | None) -> None:
        """Have a successor serve, *caller* too; what was forked goes on."""
        self.listener.close()
        os.close(self.lock)
        _log.info("the code changed: a successor takes over")
        try:
            spawn(self.state_dir, self.preload, os.environ)
        except (OSError, subprocess.SubprocessError):
            _log.exception("the successor did not start")
        if caller is not None:
            with caller, suppress(OSError):
                caller.send(AGAIN)

    def _socket_inode(self) -> int:
        try:
            return (self.state_dir / "fork.sock").stat().st_ino
        except OSError:
            return -1


def _heard(caller: socket.socket) -> bytes | None:
    """What *caller* asks to run; None where it asks nothing, or has left meanwhile."""
    request, fds = None, list[int]()
    try:
        _, fds, _, _ = socket.recv_fds(caller, 64, 1)
        request = os.pread(fds[0], os.fstat(fds[0]).st_size, 0) if fds else None
        caller.setblocking(False)
        caller.recv(1, socket.MSG_PEEK)  # its end is all that there can be
    except BlockingIOError:
        return request
    except OSError:
        pass
    finally:
        for fd in fds:
            os.close(fd)
    return None


def _main(state_dir: Path, preload: Sequence[str]) -> None:
    note = ExitNote()
    atexit.register(note.write)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False  # Prefect sets up the root logger when it is imported

    if (lock := lock_file(state_dir / "forkserver.lock")) is None:
        return  # another server won
    server = _Server(state_dir, preload, lock)
    _detach(server.listener)
    server.daemon.note()
    prune_locks(state_dir, SystemClock().now().timestamp())
    server.import_modules()
    read = prefect_environments()
    _log.info("serving %s", state_dir)
    if (request := server.run()) is not None:
        run_forked(state_dir, request, note, read)


def _detach(listener: socket.socket) -> None:
    """Go on in a process of its own session; the launcher ends once that one listens."""
    ready, alive = os.pipe()
    if os.fork():
        os.close(alive)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    os.setsid()
    listener.listen(64)  # again: SO_PEERCRED names the process that called it last
    os.close(alive)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
