"""A command in memory, as a script."""

import queue
from dataclasses import dataclass

from headway.model.exec_messages import StandardStream, StreamData, WindowSize

_KILLED = 137


@dataclass(frozen=True, slots=True)
class CommandScript:
    """What a command does."""

    output: bytes = b""
    error: bytes = b""
    exit_code: int = 0
    reads: bool = False
    """Prints its input, and ends with it."""
    stays: bool = False
    """Does not end before it is killed."""


class FakeExecution:
    """One command that follows its script."""

    def __init__(self, script: CommandScript) -> None:
        """It has printed already what it prints by itself."""
        self._script = script
        self._pieces: queue.SimpleQueue[StreamData | None] = queue.SimpleQueue()
        self._code: int | None = None
        self.windows: list[WindowSize] = []
        for stream, data in (
            (StandardStream.OUTPUT, script.output),
            (StandardStream.ERROR, script.error),
        ):
            if data:
                self._pieces.put(StreamData(stream, data))
        if not script.reads and not script.stays:
            self._end(script.exit_code)

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._pieces.put(None)

    def read(self) -> StreamData | None:
        """Wait for the next bytes; None at the end."""
        piece = self._pieces.get()
        if piece is None:
            self._pieces.put(None)  # for whoever asks again
        return piece

    def write(self, data: bytes) -> None:
        """Print it again, if it reads."""
        if self._script.reads and self._code is None:
            self._pieces.put(StreamData(StandardStream.OUTPUT, data))

    def end_input(self) -> None:
        """End, if it reads."""
        if self._script.reads:
            self._end(self._script.exit_code)

    def resize(self, window: WindowSize) -> None:
        """Note it."""
        self.windows.append(window)

    def exit_code(self) -> int | None:
        """How it ended; None until then."""
        return self._code

    def close(self) -> None:
        """Kill it."""
        self._end(_KILLED)
