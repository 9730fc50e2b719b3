"""How an attempt ended: from what the runtime saw to one kind and one line of advice."""

import re
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
    kind, message = _cause(status, log_tail, timed_out=timed_out, gpus=gpus)
    return Exit(kind, status.exit_code, message)


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


def _cause(  # noqa: PLR0911 - a table of causes, strongest first, reads best as returns
    status: ContainerStatus, log_tail: str, *, timed_out: bool, gpus: bool
) -> tuple[ExitKind, str]:
    code = status.exit_code
    if timed_out:
        message = "stopped at its time limit; raise max_runtime, or ask for less work"
        return ExitKind.TIMED_OUT, message
    if status.state is ContainerState.CREATED:
        reason = status.error or "no reason given"
        return ExitKind.INFRASTRUCTURE, f"the container never started ({reason})"
    if code == 0:
        return ExitKind.OK, _DONE_WITH_A_KILL if status.oom_killed else "done"
    if status.oom_killed:
        message = f"killed at its host memory limit (exit {code}); raise resources.host_memory"
        return ExitKind.OUT_OF_MEMORY, message
    if gpus and ran_out_of_gpu_memory(log_tail):
        message = f"GPU memory ran out (exit {code}); raise resources.gpu_memory, or lower the "
        return ExitKind.GPU_OUT_OF_MEMORY, message + "batch size"
    if code in (None, _SIGKILL, _SIGTERM):
        how = "without an exit code" if code is None else f"by a signal (exit {code})"
        why = status.error or "as when the engine or the node restarts"
        message = f"ended {how}, not by the program nor by headway: {why}"
        return ExitKind.INFRASTRUCTURE, message
    return ExitKind.FAILED, _failed(status, log_tail)


_DONE_WITH_A_KILL = (
    "done, but one of its processes was killed at the host memory limit: check the result, and set "
    "resources.host_memory higher"
)


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
