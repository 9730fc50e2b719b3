"""A child of the fork server: becomes the process that was asked for, and runs its module."""

import ctypes
import importlib
import logging
import os
import runpy
import signal
import sys
import time
import warnings
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path

from headway.node.flowlock import FENCED, lock_flow
from headway.node.forkstart import Program
from headway.project import PROJECT


class ExitNote:
    """Leaves the exit status beside the pid in the run's lock file.

    Nobody who waits for it is its parent. Its `write` belongs to the
    very end of the process, after Prefect's own exit hooks: `atexit` runs first
    what was registered last, so register it before Prefect is imported.
    """

    def __init__(self) -> None:
        self.lock = -1
        self.status: int | None = None
        """None until the program has ended; it stays so where the process broke."""

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


def run_forked(
    state_dir: Path, request: bytes, note: ExitNote, read: Container[Mapping[str, str]]
) -> None:
    """Become the process that *request* describes and run its program to the end.

    Args:
        state_dir: Where the lock of a run lies.
        request: A `Program`, encoded.
        note: Is told the status of a flow process; it is written when the interpreter ends.
        read: What Prefect has read of the environment, `prefect_environments`.

    Raises:
        SystemExit: As the program ends; `FENCED` when the run lives already.
    """
    os.setsid()
    program = Program.decoded(request)
    _redirect(program.log)
    _reset_signals()
    _replace_environment(program.env)
    os.chdir(PROJECT)
    module, *sys.argv[1:] = program.command
    sys.argv[0] = ""
    _call_itself(program)
    _lock(state_dir, note)
    if _prefect_environment() not in read:
        _refresh_prefect()  # a tenth of a second
    # It is imported already, and nothing that it has made is shared with what runs now.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        note.status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    note.status = 0


def _redirect(log: str | None) -> None:
    """Read nothing, and write to *log*; a flow process logs through Prefect."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    output = nowhere if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream, opened in enumerate((nowhere, output, output)):
        os.dup2(opened, stream)
    os.close(nowhere)
    if output != nowhere:
        os.close(output)


def _call_itself(program: Program) -> None:
    """Have `ps` and `top` show this program in the place of the fork server."""
    Path("/proc/self/comm").write_text(f"headway-{program.name}")
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    title = " ".join((sys.executable, "-m", *program.command)).encode()[: end - start - 2]
    # Without a NUL as its last byte the kernel shows what is before the first one.
    ctypes.memmove(start, title.ljust(end - start - 1, b"\0") + b".", end - start)


def _reset_signals() -> None:
    """As a fresh interpreter has them, whatever the server inherited (`&` ignores SIGINT)."""
    for signum in signal.valid_signals():
        if signal.getsignal(signum) not in {signal.SIG_DFL, None}:
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _replace_environment(environment: Mapping[str, str]) -> None:
    base = [entry for entry in sys.path if entry not in _pythonpath()]
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = [*_pythonpath(), *base]
    time.tzset()


def _pythonpath() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _lock(state_dir: Path, note: ExitNote) -> None:
    run_id = os.environ.get("PREFECT__FLOW_RUN_ID")
    if not run_id:
        return  # a daemon
    lock = lock_flow(str(state_dir), run_id)
    if lock is None:
        sys.exit(FENCED)
    note.lock = lock


def prefect_environments() -> list[dict[str, str]]:
    """What Prefect has read from this process's environment: as it was given, and as it tells it.

    A worker gives its flow processes what is set in its profile, too, in Prefect's own spelling.
    """
    given = _prefect_environment()
    if "prefect.settings" not in sys.modules:
        return [given]
    settings = importlib.import_module("prefect.settings").get_current_settings()
    return [given, given | settings.to_environment_variables(exclude_unset=True)]


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
