"""The long-lived processes of the site on this machine, each known by its pid and start time."""

import fcntl
import json
import logging
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from headway.clock import SystemClock
from headway.durable import replace_file
from headway.errors import HeadwayError
from headway.node.forkstart import NotForked, Program, fork
from headway.project import PROJECT
from headway.settings import Settings
from headway.units import MIB, format_duration
from headway.waits import until

LOG_LIMIT_BYTES = 32 * MIB


def bound_logs(state_dir: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> list[Path]:
    """Empty each log of more than *limit_bytes*; what was in it is in ``NAME.log.1`` from then on.

    Who writes a log appends to it and keeps it open, so it is copied and emptied in its
    place. A line that is written between the two is lost.

    Returns:
        The logs that were emptied.

    Raises:
        OSError: One could not be copied, for want of a disk say: it stays as it is. The others
            are emptied all the same.
    """
    found, failed = [], list[OSError]()
    for log in state_dir.glob("*.log"):
        try:
            if log.stat().st_size > limit_bytes:
                shutil.copy(log, f"{log}.1")  # with its permissions
                os.truncate(log, 0)
                found.append(log)
        except OSError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return found


log = logging.getLogger(__name__)

_KILLED_S = 10.0
SILENT_S = 60.0
"""One that has not beaten for so long hangs."""


class AlreadyRuns(HeadwayError):
    """Another process is this daemon already."""

    def __init__(self, what: str, pid: int) -> None:
        self.what = what
        self.pid = pid
        super().__init__(f"the {what} of this node runs already, as process {pid}; stop it first")


@dataclass(frozen=True, slots=True)
class Daemon:
    """One long-lived process of the site, described by a file below `state_dir`."""

    name: str
    state_dir: Path

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.state_dir / f"{self.name}.log"

    @property
    def _record(self) -> Path:
        return self.state_dir / f"{self.name}.json"

    def process(self) -> psutil.Process | None:
        """The live process, or None."""
        try:
            record = json.loads(self._record.read_text())
            process = psutil.Process(record["pid"])
            if abs(process.create_time() - record["created"]) < 1.0:
                return None if process.status() == psutil.STATUS_ZOMBIE else process
        except (OSError, ValueError, KeyError, psutil.Error):
            pass
        return None

    def beat(self) -> None:
        """Say that the process that calls, which is this daemon, lives."""
        now_s = SystemClock().monotonic_s()  # all processes since the machine's start share it
        with suppress(FileNotFoundError):  # `headway down` was faster
            os.utime(self._record, (now_s, now_s))

    def silent_s(self) -> float:
        """Since it has beaten last; nothing of one that never has."""
        try:
            beaten_s = self._record.stat().st_mtime  # until then the time of day
        except FileNotFoundError:
            return 0.0
        return max(SystemClock().monotonic_s() - beaten_s, 0.0)

    def frozen(self) -> str:
        """Why its process, which is there, does nothing; empty where it is well, or not there."""
        process, silent_s = self.process(), self.silent_s()
        with suppress(psutil.NoSuchProcess):
            if process is not None and process.status() == psutil.STATUS_STOPPED:
                return f"process {process.pid} was stopped (SIGSTOP)"
            if process is not None and silent_s >= SILENT_S:
                return f"process {process.pid} has hung for {format_duration(silent_s)}"
        return ""

    def runs(self, say: Callable[[str], None], *, hangs: bool = False) -> bool:
        """Whether it runs and is well; one that is frozen or *hangs* is killed, *say* is told."""
        if why := self.frozen() or ("it gives no answer" if hangs and self.process() else ""):
            say(f"the {self.name} does nothing: {why}; it is killed, and another one started")
            self.stop(signal.SIGKILL, _KILLED_S)
        return self.process() is not None

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Hold while looking whether it runs and starting it: a person and the supervisor may."""
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Not NAME.lock: a fork server of an earlier version holds "fork.lock" while it lives.
        with (self.state_dir / f"{self.name}.starting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def start(
        self,
        command: list[str],
        env: Mapping[str, str],
        *,
        user: str | None = None,
        cwd: Path = PROJECT,
    ) -> psutil.Process:
        """Start the executable *command* in its own session, so that it outlives this terminal.

        Args:
            command: The program with its arguments.
            env: All of its environment.
            user: Whom it runs as, in no other group than that user's own.
            cwd: Where it begins.
        """
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=pwd.getpwnam(user).pw_gid if user is not None else None,
                extra_groups=[] if user is not None else None,
            )
        process = psutil.Process(child.pid)
        self._note(process)
        # Supervisor and guard live long: what they started and has died must not stay a zombie.
        threading.Thread(target=child.wait, daemon=True).start()
        return process

    def start_python(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start a Python module as `start` does: *command* is its name, then its arguments.

        The node's fork server forks it; where there is none it begins by itself, and shares
        nothing that it imports with others.
        """
        program = Program(self.name, command, env, str(self.log))
        try:
            forked = fork(self.state_dir, program)
        except NotForked as error:
            log.warning("the %s starts by itself: %s", self.name, error)
            self.start([sys.executable, "-m", *command], env)
            return
        os.close(forked.pidfd)
        with suppress(psutil.NoSuchProcess):  # it has ended at once
            self._note(psutil.Process(forked.pid))

    def claim(self) -> None:
        """Be this daemon in the process that calls, whoever started it.

        Raises:
            AlreadyRuns: Another process is.
        """
        other = self.process()
        if other is not None and other.pid != os.getpid():
            raise AlreadyRuns(self.name, other.pid)
        self.note()

    def note(self) -> None:
        """Be this daemon, whoever was before."""
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._note(psutil.Process())

    def _note(self, process: psutil.Process) -> None:
        record = {"pid": process.pid, "created": process.create_time()}
        # Whoever reads half of it would take the process for dead.
        replace_file(self._record, json.dumps(record))

    def stop(self, how: signal.Signals, grace_s: float) -> bool:
        """Stop it: *how*, then SIGKILL after *grace_s*. False when it did not run."""
        process = self.process()
        if process is None:
            self._record.unlink(missing_ok=True)
            return False
        with suppress(psutil.NoSuchProcess):  # it leaves at this moment
            process.send_signal(how)
            process.resume()  # one that was stopped would not hear of it
        if not self._ends_within(grace_s):
            process.kill()
            self._ends_within(_KILLED_S)
        self._record.unlink(missing_ok=True)
        return True

    def _ends_within(self, limit_s: float) -> bool:
        """Wait for its end; a zombie has ended, whenever its parent cares to hear of it."""
        return until(lambda: self.process() is None, SystemClock(), limit_s, 0.05)


def _called(name: str) -> Callable[[Settings], Daemon]:
    return lambda settings: Daemon(name, settings.state_dir)


fork_daemon = _called("fork")
"""The fork server of this node, which starts the others."""
server_daemon = _called("server")
"""The Prefect server of this site."""
gateway_daemon = _called("gateway")
"""The gateway of this site."""
scheduler_daemon = _called("scheduler")
"""The scheduler of this node's pool, while one runs here."""
follower_daemon = _called("follower")
"""What hands runs to the engines whose submit host this is, and follows them."""
guard_daemon = _called("guard")
"""The guard of this machine's containers."""
supervisor_daemon = _called("supervisor")
"""What brings the others back."""
database_daemon = _called("database")
"""The PostgreSQL that headway itself started for this site."""
worker_daemon = _called("worker")
"""The `gpu-node` worker of this machine."""


def supervisor_note(settings: Settings) -> Path:
    """The command of the supervisor, for as long as `headway up` wants one."""
    return settings.state_dir / "supervisor.command.json"


def revive_supervisor(settings: Settings) -> bool:
    """Start the supervisor again where it is wanted and has died; whether that was so."""
    daemon, note = supervisor_daemon(settings), supervisor_note(settings)
    if not note.exists() or (daemon.process() is not None and daemon.silent_s() < SILENT_S):
        return False
    with daemon.starting(), suppress(FileNotFoundError):  # `headway down` was faster
        command = json.loads(note.read_bytes())
        if not daemon.runs(log.warning):
            daemon.start_python(command, os.environ)
            return True
    return False
