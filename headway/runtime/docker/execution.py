"""A command beside the program of a container, in a Docker engine."""

import logging
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any

import psutil
from docker.errors import APIError, NotFound

from headway.clock import Clock
from headway.model.exec_messages import ExecCommand, StandardStream, StreamData, WindowSize
from headway.runtime.docker.engine import Engine, asking, ordering
from headway.runtime.errors import RuntimeFailure
from headway.waits import until

_POLL_S = 0.02
_PIECE_BYTES = 1 << 16
_HEADER = struct.Struct(">BxxxL")
"""Before each piece of output without a terminal: which stream, and how many bytes."""
_MARK = "HEADWAY_EXEC"
"""In the environment of a command, and so of what it starts, whoever its parent is by then."""
_ROUNDS = 10

log = logging.getLogger(__name__)


class DockerExecution:
    """One command at an engine."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        found: dict[str, Any],
        command: ExecCommand,
        pids: Callable[[], Sequence[int]],
    ) -> None:
        """Start *command* in the container of which the engine has *found* this; it runs then.

        *pids* are those of the container, on the host.

        Whatever the container may not do, the command may not either: the engine takes
        environment, working directory, capabilities and limits from the container.
        """
        self._engine, self._pids, self._mark = engine, pids, token_hex(16)
        self._terminal = command.window is not None
        with ordering("start a command in a container"):
            self._id = engine.api.exec_create(
                found["Id"],
                list(command.arguments),
                stdin=True,
                tty=self._terminal,
                user=found["Config"]["User"],
                environment={_MARK: self._mark},
            )["Id"]
            opened: Any = engine.api.exec_start(self._id, tty=self._terminal, socket=True)
        # The SDK gives the raw socket. Output that came together with the answer's head is in
        # the reader of that answer already, so it has to be read from there.
        self._answer = opened._response  # noqa: SLF001 - the SDK has no other way
        self._reader = self._answer.raw._fp.fp  # noqa: SLF001 - as above
        self._socket: socket.socket = opened._sock  # noqa: SLF001 - as above
        self._socket.settimeout(None)  # a command may be silent for longer than one answer takes
        self._process: psutil.Process | None = None
        try:
            self._await_start(clock)
        except BaseException:
            self.close()
            raise
        if command.window is not None:
            self.resize(command.window)

    def _await_start(self, clock: Clock) -> None:
        """Wait until the engine has started it, and note which process it is.

        A process is known by its number and its start, so that no other one is killed for it.
        """

        def has_begun() -> bool:
            found = self._inspected()
            if found["Running"] and found["Pid"]:
                with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                    self._process = psutil.Process(found["Pid"])
                return True
            return found["ExitCode"] is not None

        if not until(has_begun, clock, self._engine.timeout_s, _POLL_S):
            raise RuntimeFailure(
                f"the engine has not started the command within {self._engine.timeout_s} s; try it "
                "again, and `headway doctor` on its node"
            )

    def _inspected(self) -> dict[str, Any]:
        with asking("look at a command in a container"):
            try:
                found: dict[str, Any] = self._engine.api.exec_inspect(self._id)
            except NotFound as error:
                raise RuntimeFailure(
                    "the run has ended, and the command with it; its exit status is not known"
                ) from error
        return found

    def read(self) -> StreamData | None:
        """Wait for the next bytes of output or error; None at the end of both."""
        try:
            if self._terminal:
                data = self._reader.read1(_PIECE_BYTES)
                return StreamData(StandardStream.OUTPUT, data) if data else None
            header = self._reader.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            number, length = _HEADER.unpack(header)
            stream = StandardStream.OUTPUT if number == 1 else StandardStream.ERROR
            return StreamData(stream, self._reader.read(length))
        except (OSError, ValueError):  # it was closed meanwhile
            return None

    def write(self, data: bytes) -> None:
        """Give it *data* as input; nothing happens where it reads no more."""
        with suppress(OSError):
            self._socket.sendall(data)

    def end_input(self) -> None:
        """Let it find the end of its input."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def resize(self, window: WindowSize) -> None:
        """Tell its terminal how large it is now; nothing happens without one."""
        if not self._terminal:
            return
        with ordering("resize a terminal"), suppress(APIError):  # it has ended meanwhile
            self._engine.api.exec_resize(self._id, height=window.rows, width=window.columns)

    def exit_code(self) -> int | None:
        """How it ended; None while it runs. Raises `RuntimeFailure` where nobody can say."""
        found = self._inspected()
        code = found["ExitCode"]
        return None if found["Running"] or code is None else int(code)

    def close(self) -> None:
        """Kill it, with all that it has started, where that still runs; `read` ends.

        The engine has no call for that: who leaves a command leaves it running.
        """
        try:
            self._kill()
        finally:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._answer.close()

    def _kill(self) -> None:
        """Kill it and what is below it, and what of it has no parent of its own any more.

        One may start another while it is killed, so it is looked again until nobody is there.
        """
        left = [] if self._process is None else [self._process]
        with suppress(psutil.Error):
            for each in tuple(left):
                each.suspend()  # so that nothing more comes below it
                left = [*each.children(recursive=True), each]
        for _ in range(_ROUNDS):
            left += self._marked()
            for each in left:
                try:
                    each.kill()
                except psutil.NoSuchProcess:
                    continue
                except psutil.AccessDenied:
                    log.warning("process %d of a command ends with its run alone", each.pid)
            if not left:
                return
            left = []

    def _marked(self) -> Iterator[psutil.Process]:
        """What was started with its mark, and runs; what may not be looked at is not known."""
        for pid in self._pids():
            with suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                if process.environ().get(_MARK) == self._mark:
                    yield process
