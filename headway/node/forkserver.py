"""Starts the processes of a node in milliseconds: forks them from one that has imported it all.

Flow processes and the site's own daemons (`forkstart.fork` asks for them) share the memory of
what was imported. One server a node, single-threaded, in its own session; what it has forked
survives it. Kill it at any time; the next `start_server` starts another, and meanwhile no run
starts.

When the code it has imported changes, it hands over to a successor, so that nothing
runs code older than its files at the moment of its start.
"""

import atexit
import fcntl
import gc
import importlib
import logging
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headway.clock import SystemClock
from headway.node.daemon import Daemon
from headway.node.flowlock import prune_locks
from headway.node.forkedprocess import ExitNote, prefect_environments, run_forked
from headway.node.forkstart import AGAIN, socket_address, spawn
from headway.node.imported import ImportedModules

TICK_S = 2.0
"""How often an idle server looks whether its code or its socket changed."""

_log = logging.getLogger("headway.node.forkserver")


class _Server:
    """The loop that forks and reaps. Nothing in it may block or start a thread."""

    def __init__(self, state_dir: Path, preload: Sequence[str], lock: int) -> None:
        self.state_dir = state_dir
        self.preload = preload
        self.lock = lock
        self.refusal = b""
        self.children: dict[int, int] = {}
        """Pids of its children by their pidfds."""
        # poll, not epoll: a forked child that closes its copies must not change ours.
        self.selector = selectors.PollSelector()
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
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ)
        return listener

    def import_modules(self) -> None:
        """Import what children need, and remember which files that was."""
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

    def run(self) -> int | None:
        """Serve until another one does.

        Returns:
            None in the server; in each forked child, the descriptor of its request.
        """
        while self.lock >= 0:
            for key, _ in self.selector.select(TICK_S):
                if self.selector.get_map().get(key.fileobj) is not key:
                    continue  # closed by an event before it
                if key.fileobj is self.listener:
                    with suppress(OSError):
                        connection, _ = self.listener.accept()
                        connection.setblocking(False)
                        self.selector.register(connection, selectors.EVENT_READ)
                elif isinstance(key.fileobj, int):
                    self._reap(key.fileobj)
                elif isinstance(key.fileobj, socket.socket):
                    request = self._hear(key.fileobj)
                    if request is not None:
                        return request
            self._look_around()
        return None

    def _look_around(self) -> None:
        if self.lock < 0:
            return  # a successor has taken over
        self.daemon.beat()
        if self._socket_inode() != self.inode:
            _log.warning("another server took the socket, or it was removed; this one ends")
            self._retire()
        elif self.imported.outdated():
            self._hand_over()

    def _hear(self, connection: socket.socket) -> int | None:
        try:
            message, fds, _, _ = socket.recv_fds(connection, 64, 1)
        except OSError:
            message, fds = b"", []
        if message and not _hung_up(connection):
            if len(fds) == 1 and not (refusal := self._reason_not_to_fork()):
                return self._fork(connection, fds[0])
            with suppress(OSError):
                connection.send(refusal if len(fds) == 1 else b"not a request")
        self._close(connection)
        for fd in fds:
            os.close(fd)
        return None

    def _reason_not_to_fork(self) -> bytes:
        if self.lock >= 0 and self.imported.outdated():
            self._hand_over()
        return AGAIN if self.lock < 0 else self.refusal

    def _fork(self, connection: socket.socket, request: int) -> int | None:
        try:
            pid = os.fork()
        except OSError as error:
            _log.error("cannot fork: %s", error)
            pid = -1
        if pid == 0:
            self._let_go()
            return request
        os.close(request)
        if pid > 0:
            pidfd = os.pidfd_open(pid)
            self.children[pidfd] = pid
            self.selector.register(pidfd, selectors.EVENT_READ)
            with suppress(OSError):
                socket.send_fds(connection, [b"%d" % pid], [pidfd])
        self._close(connection)
        return None

    def _let_go(self) -> None:
        """In the child: drop everything that belongs to the server."""
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif isinstance(key.fileobj, int):
                os.close(key.fileobj)
        os.close(self.lock)

    def _reap(self, pidfd: int) -> None:
        os.waitpid(self.children.pop(pidfd), 0)
        self.selector.unregister(pidfd)
        os.close(pidfd)

    def _close(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        connection.close()

    def _hand_over(self) -> None:
        self._retire()
        _log.info("the code changed: a successor takes over, %d children go on", len(self.children))
        try:
            spawn(self.state_dir, self.preload, os.environ)
        except (OSError, subprocess.SubprocessError):
            _log.exception("the successor did not start")

    def _retire(self) -> None:
        """Serve no more; what was forked goes on."""
        self._close(self.listener)
        os.close(self.lock)
        self.lock = -1

    def _socket_inode(self) -> int:
        try:
            return (self.state_dir / "fork.sock").stat().st_ino
        except OSError:
            return -1


def _hung_up(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _main(state_dir: Path, preload: Sequence[str]) -> None:
    note = ExitNote()
    atexit.register(note.write)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False  # Prefect sets up the root logger when it is imported

    lock = os.open(state_dir / "forkserver.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
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
