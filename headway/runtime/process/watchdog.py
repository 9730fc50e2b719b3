"""What the shim does while its program runs: hold its limits, note what it uses and how it ends.

Files, each written by renaming: `usage.json` about every second, `exit.json` at the end.
"""

import contextlib
import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

from headway.cgroups import Cgroups
from headway.clock import SystemClock
from headway.durable import replace_file
from headway.runtime import logfile
from headway.runtime.process import proctree

MEMORY_LIMIT = "memory_limit"
"""The file with the bytes to which the limit was raised while the program ran."""
POLL_S = 0.1
NEAR_POLL_S = 0.02
"""When more than half of the memory is used: a program that grows has less time to overshoot."""
_NOTE_EVERY_S = 1.0
_NOTED_FRAC = 1 / 16
"""Of the limit: where the use has changed by more, it is noted at once, for who raises limits."""
_NEW_PEAK_FRAC = 0.02
_RETRY_S = 1.0
_KILL_PAUSE_S = 0.002
_MAXRSS_BYTES = 1024


class Watchdog:
    """Watches one program and everything it starts, until all of it has ended.

    Args:
        folder: The container's folder.
        about: What the note of its end says of it besides.
        spec: What `ProcessRuntime.create` noted.
        pid: The program, a child of this process.
    """

    def __init__(self, folder: Path, about: dict[str, Any], spec: dict[str, Any], pid: int) -> None:
        self._folder = folder
        self._about = about
        self._pid = pid
        self._limit_bytes: int = spec["host_memory_bytes"]
        self._pids_limit: int = spec["pids"]
        self._memory_group: str = spec.get("memory_group", "")
        self._log = Path(spec["log_path"])
        self._log_limit_bytes: int = spec["log_limit_bytes"]
        self._peak_bytes = 0
        self._used_bytes = 0
        self._noted_bytes = 0
        self._oom_killed = False
        self._error = ""
        self._kill = False
        self._code: int | None = None

    def watch(self) -> None:
        """Watch until the program ends, kill what it left, note the end."""
        next_note_s = 0.0
        while True:
            self._reap()
            if self._code is not None or self._kill:
                break
            self._check(proctree.tree(os.getpid()))
            moved_bytes = abs(self._used_bytes - self._noted_bytes)
            if time.monotonic() >= next_note_s or moved_bytes > self._limit_bytes * _NOTED_FRAC:
                with contextlib.suppress(OSError):  # a full disk
                    self._write_use()
                next_note_s = time.monotonic() + _NOTE_EVERY_S
            self._pause()
        self._kill_all()
        self._note_end()

    def _pause(self) -> None:
        """Wait for a moment; less where SIGTERM comes, or a child ends."""
        pause_s = NEAR_POLL_S if self._used_bytes > self._limit_bytes // 2 else POLL_S
        # The kernel says at once when a child ends; a poll would add 50 ms to every run.
        came = signal.sigtimedwait({signal.SIGTERM, signal.SIGCHLD}, pause_s)
        self._kill |= came is not None and came.si_signo == signal.SIGTERM

    def _check(self, pids: list[int]) -> None:
        """Compare the program's processes with its limits; have them killed beyond."""
        self._used_bytes = sum(proctree.rss_bytes(pid) for pid in pids)
        # Shared pages count once for each process in RSS: forked loaders would be
        # killed for memory they never took. The exact sum takes long, so it is asked
        # for only near a limit or a new peak.
        near = min(self._limit_bytes, self._peak_bytes * (1 + _NEW_PEAK_FRAC))
        if len(pids) > 1 and self._used_bytes > near:
            self._used_bytes = sum(proctree.pss_bytes(pid) for pid in pids)
        self._peak_bytes = max(self._peak_bytes, self._used_bytes)
        if self._used_bytes > self._limit_bytes // 2:
            self._read_limit()
        if self._used_bytes > self._limit_bytes:
            self._oom_killed = self._kill = True
        elif len(pids) > self._pids_limit:
            self._kill = True
            self._error = (
                f"stopped with {len(pids)} processes, its limit is {self._pids_limit}; "
                "start fewer of them"
            )

    def _read_limit(self) -> None:
        """Take over the limit that was raised since the program began, if it was."""
        with contextlib.suppress(OSError, ValueError):
            self._limit_bytes = int((self._folder / MEMORY_LIMIT).read_text())

    def _write_use(self) -> None:
        """Write down what is used, and give up the oldest part of a log that is too long."""
        live_s = sum(proctree.cpu_s(pid) for pid in proctree.tree(os.getpid()))
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        use = {
            "peak_bytes": self._peak_bytes,
            "used_bytes": self._used_bytes,
            "cpu_s": live_s + ended.ru_utime + ended.ru_stime,
        }
        replace_file(self._folder / "usage.json", json.dumps(use), lasts=False)
        self._noted_bytes = self._used_bytes
        logfile.trim(self._log, self._log_limit_bytes)

    def _kill_all(self) -> None:
        """Kill whatever runs; stopped first, so that nothing forks away.

        However long it takes: an end that was noted while something lives
        would give its memory to others. Whoever cannot wait kills the shim.
        """
        pause_s = _KILL_PAUSE_S
        while proctree.kill_below(os.getpid()):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_S)
            self._reap()
        self._reap()  # what has died since

    def _reap(self) -> None:
        """Wait for every child that ended: the program, and orphans that came to us."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._code = os.waitstatus_to_exitcode(status)
            # The kernel saw the peaks between two polls.
            self._peak_bytes = max(self._peak_bytes, used.ru_maxrss * _MAXRSS_BYTES)

    def _note_end(self) -> None:
        """Write the end down, however long the disk is full."""
        self._used_bytes = 0
        code = self._code if self._code is not None else -signal.SIGKILL
        self._oom_killed |= bool(self._memory_group and Cgroups().memory_kills(self._memory_group))
        if self._error:
            code = 1  # its own fault; a bare 137 would read as the node's
        end = self._about | {
            "exit_code": code if code >= 0 else 128 - code,
            "oom_killed": self._oom_killed,
            "error": self._error,
            "ended_at": SystemClock().now().timestamp(),
        }
        while True:
            try:
                self._write_use()
                replace_file(self._folder / "exit.json", json.dumps(end))
                return
            except FileNotFoundError:
                return  # removed
            except OSError:
                time.sleep(_RETRY_S)
