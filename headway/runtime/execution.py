"""A command beside a program that runs, as each runtime gives it to who has started it."""

from typing import Protocol

from headway.model.exec_messages import StreamData, WindowSize


class Execution(Protocol):
    """One command, in the place of its container's program and as its user. Synchronous.

    One thread reads and another one writes; any may close it.
    """

    def read(self) -> StreamData | None:
        """Wait for the next bytes of output or error; None at the end of both."""
        ...

    def write(self, data: bytes) -> None:
        """Give it *data* as input; nothing happens where it reads no more."""
        ...

    def end_input(self) -> None:
        """Let it find the end of its input."""
        ...

    def resize(self, window: WindowSize) -> None:
        """Tell its terminal how large it is now; nothing happens without one."""
        ...

    def exit_code(self) -> int | None:
        """How it ended; None while it runs. Raises `RuntimeFailure` where nobody can say."""
        ...

    def close(self) -> None:
        """Kill it, with all that it has started, where that still runs; `read` ends."""
        ...
