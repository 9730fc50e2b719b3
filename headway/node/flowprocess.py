"""A child of the fork server: becomes the flow process that was asked for, and runs the engine."""

import importlib
import logging
import os
import runpy
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headway.node.flowlock import FENCED, lock_flow
from headway.project import PROJECT

ENGINE = "flows.engine"
"""What a flow process runs as `__main__`."""


class ExitNote:
    """Leaves the exit status beside the pid in the run's lock file.

    Nobody who waits for it is its parent. Its `write` belongs to the
    very end of the process, after Prefect's own exit hooks: `atexit` runs first
    what was registered last, so register it before Prefect is imported.
    """

    def __init__(self) -> None:
        self.lock = -1
        self.status: int | None = None
        """None until the engine has ended; it stays so where the process broke."""

    def write(self) -> None:
        """Write the status, and end; nothing to do in the server itself.

        The interpreter would go on to take its modules down one by one: it touches all that
        is shared with the server, and so copies it, which takes a tenth of a second.
        """
        if self.lock < 0:
            return
        with suppress(OSError):
            os.write(self.lock, b"%d\n" % (1 if self.status is None else self.status))
        if self.status is not None:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self.status & 0xFF)


def run_flow_process(state_dir: Path, request: int, note: ExitNote) -> None:
    """Become the process that *request* describes and run the engine to its end.

    Args:
        state_dir: Where the lock of the run lies.
        request: Descriptor of the memory file that `fork_flow` wrote: its environment.
        note: Is told the status; it is written when the interpreter ends.

    Raises:
        SystemExit: As the engine ends; `FENCED` when the run lives already.
    """
    os.setsid()
    with open(request, "rb") as file:
        file.seek(0)
        environment = file.read().split(b"\0")
    nowhere = os.open(os.devnull, os.O_RDWR)  # it logs through Prefect
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    _reset_signals()
    inherited = _prefect_environment()
    _replace_environment(environment)
    os.chdir(PROJECT)
    sys.argv[:] = [""]
    Path("/proc/self/comm").write_text("headway-flow")
    _lock(state_dir, note)
    if _prefect_environment() != inherited:
        _refresh_prefect()  # a tenth of a second
    try:
        runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        note.status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    note.status = 0


def _reset_signals() -> None:
    """As a fresh interpreter has them, whatever the server inherited (`&` ignores SIGINT)."""
    for signum in signal.valid_signals():
        if signal.getsignal(signum) not in {signal.SIG_DFL, None}:
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _replace_environment(environment: Sequence[bytes]) -> None:
    base = [entry for entry in sys.path if entry not in _pythonpath()]
    os.environb.clear()
    for entry in environment:
        name, _, value = entry.partition(b"=")
        os.environb[name] = value
    sys.path[:] = [*_pythonpath(), *base]
    time.tzset()


def _pythonpath() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _lock(state_dir: Path, note: ExitNote) -> None:
    run_id = os.environ.get("PREFECT__FLOW_RUN_ID")
    if not run_id:
        return  # the engine says what is wrong with that
    lock = lock_flow(str(state_dir), run_id)
    if lock is None:
        sys.exit(FENCED)
    note.lock = lock


def _prefect_environment() -> dict[str, str]:
    """What Prefect's settings, and where it looks for them, come from."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "HOME" or (name.startswith("PREFECT_") and not name.startswith("PREFECT__"))
    }


def _refresh_prefect() -> None:
    """Have Prefect read again what it read from the server's environment at import."""
    if "prefect.context" not in sys.modules:
        return
    settings = importlib.import_module("prefect.settings")
    for name in settings.PREFECT_LOGGING_EXTRA_LOGGERS.value():
        logging.getLogger(name).handlers.clear()  # else they are added a second time
    importlib.import_module("prefect.context").refresh_global_settings_context()
    importlib.import_module("prefect.logging.configuration").setup_logging(incremental=False)
