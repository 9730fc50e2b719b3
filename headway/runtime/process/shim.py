"""The small process that holds one program for the process runtime. Run as a script.

It outlives whoever started it, starts the program in a session of its own,
and hands over to `watchdog`, which watches memory and log and writes down
how it ended. The process that was started ends once the program runs; the
shim is below it. It is the parent of everything the program starts (a child
subreaper), so nothing escapes it; when it is killed itself, the kernel kills
the program, and what the program has started comes to the shim's parent, the
keeper, which does nothing but kill it. So no process has to be found by what
it could clear: its environment, its session or its process group.

    python -I -S shim.py FOLDER GROUPS LIBRARIES…

FOLDER has `spec.json` and `env.json`, written by `ProcessRuntime.create`. GROUPS are the files by
which the program joins control groups, with colons between them; empty for none.
LIBRARIES are folders that hold headway and psutil. What needs them is
imported only after the program runs: a start costs little more than Python's.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_KILL_PAUSE_S = 0.02
_NOT_FOUND, _NOT_EXECUTABLE, _NOT_SET_UP = 127, 126, 125


def main(folder: Path, groups: str, libraries: list[str]) -> None:
    """Hold the program of *folder*, in a process of its own; returns once it runs."""
    started, report = os.pipe()
    if os.fork():
        os.close(report)
        os.read(started, 1)  # its end: the process below has closed it, or is gone
        os._exit(0)
    os.close(started)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another shim holds it
    if (folder / "running.json").exists():
        return  # it ran before
    spec = json.loads((folder / "spec.json").read_text())
    # SIGTERM means `kill everything`; the watchdog waits for it, and for the end of a child.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path += libraries
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if shim := os.fork():
        os.close(report)
        _keep(shim)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid = _start(spec | {"groups": groups}, json.loads((folder / "env.json").read_text()))
    started_at = time.time()  # noqa: TID251 - headway.clock is not loaded yet
    from headway.durable import replace_file  # noqa: PLC0415 - the program runs by now

    running = {
        "shim": {"pid": os.getpid(), "identity": identity(os.getpid())},
        "program": {"pid": pid, "identity": identity(pid)},
        "started_at": started_at,
    }
    replace_file(folder / "running.json", json.dumps(_about(spec) | running))
    (folder / "env.json").unlink()  # may hold secrets; the program has them now
    os.close(report)
    from headway.runtime.process.watchdog import Watchdog  # noqa: PLC0415 - the program runs by now

    Watchdog(folder, _about(spec) | {"started_at": started_at}, spec, pid).watch()


def _about(spec: dict[str, Any]) -> dict[str, Any]:
    """What each file of the program says of it, so that one that was cut is not missed."""
    return {key: spec[key] for key in ("run_id", "attempt", "log_path", "token")}


def _keep(shim: int) -> NoReturn:
    """Wait for the end of the shim, then kill what it has left, and end as well.

    Both hold the lock of the program's folder: while something lives, it is held.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(shim, 0)
    with contextlib.suppress(ChildProcessError):  # no child: nothing is left
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                from headway.runtime.process import proctree  # noqa: PLC0415 - hardly ever needed

                proctree.kill_below(os.getpid())
                time.sleep(_KILL_PAUSE_S)
    os._exit(0)


def _start(spec: dict[str, Any], env: dict[str, str]) -> int:
    """Fork and exec the program; its process id, without waiting for the exec."""
    log = os.open(spec["log_path"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    shim = os.getpid()
    pid = os.fork()
    if pid:
        os.close(log)
        return pid
    try:
        _become_program(spec, env, log, shim)
    except BaseException as error:  # noqa: BLE001 - the child must never run on as a shim
        os.write(log, f"headway: the program could not be started: {error}\n".encode())
        os._exit(_NOT_SET_UP)


def _become_program(spec: dict[str, Any], env: dict[str, str], log: int, shim: int) -> NoReturn:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for group in filter(None, spec["groups"].split(":")):
        with contextlib.suppress(OSError):  # without the group it runs all the same
            Path(group).write_text("0")  # 0 is this process
    if spec["affinity"]:
        os.sched_setaffinity(0, spec["affinity"])
    _give_up_rights(spec)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which clears it
    if os.getppid() != shim:
        os._exit(_NOT_SET_UP)  # the shim died before the line above
    os.chdir(spec["working_dir"])
    command = spec["command"]
    try:
        os.execvpe(command[0], command, env)  # noqa: S606 - a list, and no shell, is the point
    except OSError as error:
        os.write(2, f"headway: {command[0]}: {error.strerror}\n".encode())
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        os._exit(_NOT_FOUND if missing else _NOT_EXECUTABLE)


def _give_up_rights(spec: dict[str, Any]) -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if spec["user"]:
        from headway.runtime.process.passage import refuse  # noqa: PLC0415 - rarely needed

        refuse()
    if spec["passage"]:
        from headway.runtime.process.passage import make  # noqa: PLC0415 - rarely needed

        make(spec["passage"])
    os.umask(0o077)  # behind the passage: its directories are for others to pass
    if spec["user"]:
        uid, gid = spec["user"]
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def identity(pid: int) -> str | None:
    """What tells process *pid* from a later one of the same number; None when there is none.

    The kernel's own start time, in ticks since this boot: a jump of the
    wall clock does not change it. A zombie counts as gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
