"""A relay between a site and its container engine: whoever asks can be killed, or kept waiting.

The relay sees each request before the engine does and each answer before the caller does, and
the kernel says which process asks. So a process is killed, or held, exactly between two steps
that it takes on the engine, and production code knows nothing of it.
"""

import enum
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ENGINE = "/var/run/docker.sock"
_CHUNK_BYTES = 1 << 16
_REQUEST = re.compile(rb"(GET|HEAD|POST|PUT|DELETE) (?:/v[\d.]+)?(\S+) HTTP/1\.1\r\n")
_PEER = struct.Struct("3i")
_HELD_S = 300.0
"""Nobody is held for longer: a test that has failed must not block the engine for the next one."""


class When(enum.StrEnum):
    """On which side of the engine a request is caught."""

    BEFORE = "before"
    """The engine never hears of the request of a caller that is killed."""
    AFTER = "after"
    """The engine has done what was asked, and the caller does not know."""


@dataclass
class Trap:
    """Waits for one request, and kills or holds the process that sends it."""

    request: re.Pattern[str]
    """Method and path, as ``POST /containers/NAME/start``."""
    when: When
    kills: bool
    caught: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    pid: int = 0
    """Who was caught."""

    def spring(self, pid: int) -> None:
        """Kill or hold *pid*, which has sent the request."""
        self.pid = pid
        if self.kills:
            assert pid != os.getpid(), f"{self.request.pattern} was asked for by the test itself"
            os.kill(pid, signal.SIGKILL)
        self.caught.set()
        if not self.kills:
            self.let_go.wait(_HELD_S)


class Relay:
    """Listens at *path* for the engine at *engine*."""

    def __init__(self, path: Path, engine: str = ENGINE) -> None:
        """Listen from now on; `close` ends it."""
        self._engine = engine
        self._traps: list[Trap] = []
        self._change = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(128)
        self.address = f"unix://{path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def kill_at(self, request: str, when: When) -> Trap:
        """Kill the process that sends the next request like this."""
        return self._armed(Trap(re.compile(request), when, kills=True))

    @contextmanager
    def held_at(self, request: str, when: When) -> Iterator[Trap]:
        """Hold the process that sends the next request like this, to the end of the block."""
        trap = self._armed(Trap(re.compile(request), when, kills=False))
        try:
            yield trap
        finally:
            trap.let_go.set()
            self._taken(trap)

    def _armed(self, trap: Trap) -> Trap:
        with self._change:
            self._traps.append(trap)
        return trap

    def _taken(self, trap: Trap) -> bool:
        """Take *trap* away; False where it was sprung already."""
        with self._change:
            if trap not in self._traps:
                return False
            self._traps.remove(trap)
            return True

    def _trap(self, data: bytes) -> Trap | None:
        """The trap for the request that *data* begins with."""
        found = _REQUEST.match(data)
        if found is None:
            return None
        asked = f"{found[1].decode()} {found[2].decode()}"
        return next((each for each in tuple(self._traps) if each.request.search(asked)), None)

    def _spring(self, trap: Trap, pid: int) -> bool:
        """Spring *trap*, unless another caller did; whether *pid* is dead by it."""
        if not self._taken(trap):
            return False
        trap.spring(pid)
        return trap.kills

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        """One connection: requests here, answers in a thread of their own."""
        asked = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, _, _ = _PEER.unpack(asked)
        due: list[Trap] = []
        """Springs with the next answer."""
        with caller, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self._engine)
            answers = threading.Thread(
                target=self._answer, args=(engine, caller, due, pid), daemon=True
            )
            answers.start()
            with suppress(OSError):
                while data := caller.recv(_CHUNK_BYTES):
                    trap = self._trap(data)
                    if trap is not None and trap.when is When.AFTER:
                        due.append(trap)
                    elif trap is not None and self._spring(trap, pid):
                        break
                    engine.sendall(data)
            with suppress(OSError):
                engine.shutdown(socket.SHUT_RDWR)
            answers.join()

    def _answer(
        self, engine: socket.socket, caller: socket.socket, due: list[Trap], pid: int
    ) -> None:
        with suppress(OSError):
            while data := engine.recv(_CHUNK_BYTES):
                while due:
                    self._spring(due.pop(), pid)
                caller.sendall(data)
        with suppress(OSError):
            caller.shutdown(socket.SHUT_RDWR)
