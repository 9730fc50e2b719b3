"""How an attempt ended: from what the runtime saw to one kind and one line of advice."""

import re
from collections.abc import Callable
from datetime import datetime

from headway.errors import shown
from headway.model.run import Exit, ExitKind
from headway.runtime.oom_log import ran_out_of_gpu_memory
from headway.runtime.port import ContainerState, ContainerStatus

_SIGKILL, _SIGTERM, _SIGBUS, _SIGSEGV = 137, 143, 135, 139

_SHARED_MEMORY = re.compile(r"insufficient shared memory|No space left on device: '/dev/shm")


_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt|Exit|Refused)\b(:|$)")
"""How Python, and much that is written in it, begins the line that names what went wrong."""
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")
_PROGRESS = '{"headway"'
_LINES_BACK = 40
_MOST_WORDS = 320


def classify_exit(
    status: ContainerStatus, *, timed_out: bool = False, log_tail: str = "", gpus: bool = True
) -> Exit:
    """Tell why a container ended, and what to do next.

    Args:
        status: The container's status after its end, or in CREATED with an error.
        timed_out: headway stopped it at its time limit.
        log_tail: The last lines of its log.
        gpus: It had GPUs; without any, none of them ran out of memory.

    Returns:
        Kind, exit code and one line. A kill that neither headway nor the
        memory limit explains is the infrastructure's, never the program's.
    """
    kind = _kind(status, log_tail if gpus else "", timed_out=timed_out)
    return Exit(kind, status.exit_code, _MESSAGES[kind](status, log_tail))


def ended_by_restart(status: ContainerStatus, booted_at: datetime) -> bool:
    """Whether a container ended since its machine went down, which was back at *booted_at*.

    It was ended by a signal then; or, where the power was lost, the engine notes a code of its own
    and the moment when it was back.
    """
    began = status.started_at is not None and status.started_at < booted_at
    if not began or status.exit_code == 0 or status.oom_killed:
        return False
    late = status.ended_at is None or status.ended_at >= booted_at
    return late or status.exit_code in (None, _SIGKILL, _SIGTERM)


def _kind(  # noqa: PLR0911 - a table of causes, strongest first, reads best as returns
    status: ContainerStatus, log_tail: str, *, timed_out: bool
) -> ExitKind:
    if timed_out:
        return ExitKind.TIMED_OUT
    if status.state is ContainerState.CREATED:
        return ExitKind.INFRASTRUCTURE
    if status.exit_code == 0:
        return ExitKind.OK
    if status.oom_killed:
        return ExitKind.OUT_OF_MEMORY
    if ran_out_of_gpu_memory(log_tail):
        return ExitKind.GPU_OUT_OF_MEMORY
    if status.exit_code in (None, _SIGKILL, _SIGTERM):
        return ExitKind.INFRASTRUCTURE
    return ExitKind.FAILED


def _ok(status: ContainerStatus, _: str) -> str:
    if status.oom_killed:
        return (
            "done, but one of its processes was killed at the host memory limit: check the "
            "result, and set resources.host_memory higher"
        )
    return "done"


def _infrastructure(status: ContainerStatus, _: str) -> str:
    if status.state is ContainerState.CREATED:
        reason = status.error or "no reason given"
        return f"the container never started ({reason})"
    code = status.exit_code
    how = "without an exit code" if code is None else f"by a signal (exit {code})"
    why = status.error or "as when the engine or the node restarts"
    return f"ended {how}, not by the program nor by headway: {why}"


def _failed(status: ContainerStatus, log_tail: str) -> str:
    """The next step after the program's own failure."""
    code = status.exit_code
    if status.error:
        return f"{status.error} (exit {code})"
    if code == 126:
        return "program cannot be executed (exit 126); make it executable, or name its interpreter"
    if code == _SIGBUS or _SHARED_MEMORY.search(log_tail):
        return f"shared memory ran out (exit {code}); raise resources.shm"
    if code == _SIGSEGV:
        return "the program crashed (segmentation fault, exit 139); look at the end of its log"
    words = last_words(log_tail)
    said = f": {shown(words, _MOST_WORDS)}" if words else ""
    if code == 127:
        better = "correct the command, or use an image that has it"
        return f"a program was not found (exit 127){said}; {better}"
    return f"the program failed (exit {code}){said}; look at the end of its log"


def last_words(log_tail: str) -> str:
    """The line that tells most of a failure: its last error, else the last that is there at all.

    Launchers, loggers and shutting-down libraries write lines after the error.
    """
    lines = [_ESCAPES.sub("", line.rsplit("\r", 1)[-1]).strip() for line in log_tail.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_PROGRESS)][-_LINES_BACK:]
    errors = [line for line in lines if _ERROR.match(line)]
    return next(iter(errors[-1:] or lines[-1:]), "")


_MESSAGES: dict[ExitKind, Callable[[ContainerStatus, str], str]] = {
    ExitKind.OK: _ok,
    ExitKind.TIMED_OUT: lambda *_: (
        "stopped at its time limit; raise max_runtime, or ask for less work"
    ),
    ExitKind.OUT_OF_MEMORY: lambda status, _: (
        f"killed at its host memory limit (exit {status.exit_code}); raise resources.host_memory"
    ),
    ExitKind.GPU_OUT_OF_MEMORY: lambda status, _: (
        f"GPU memory ran out (exit {status.exit_code}); raise resources.gpu_memory, or lower the "
        "batch size"
    ),
    ExitKind.INFRASTRUCTURE: _infrastructure,
    ExitKind.FAILED: _failed,
}
