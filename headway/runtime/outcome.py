"""How an attempt ended: from what the runtime saw to one kind and one line of advice."""

import re
from datetime import datetime

from headway.errors import shown
from headway.model.run import Exit, ExitKind
from headway.runtime.port import ContainerState, ContainerStatus
from headway.units import GIB, KIB, MIB, TIB

_SAYS_SO = re.compile(
    r"(?:CUDA|Cuda|cuda|HIP|XPU)\b.{0,80}\bout of memory"
    r"|(?:CUDA|HIP)_ERROR_OUT_OF_MEMORY|(?:cuda|hip)Error(?:MemoryAllocation|OutOfMemory)\b"
    r"|(?:cuda|hip|cu)M(?:em)?[Aa]lloc\w*\W.{0,60}out of memory|cudaSuccess \(2 vs\. 0\)"
    r"|cuda runtime error \(2\)|parallel_for failed: .{0,60}out of memory"
    r"|\.cuh?\b[(:]\d+\)?: .{0,20}out of memory|out of memory at (?:line \d+ in file )?\S*\.cu\b"
    r"|(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|HIPBLAS|MIOPEN)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
    r"|rocblas_status_memory_error|OutOfMemoryError: Allocation on device"
    r"|OutOfMemoryError: [Oo]ut of memory (?:allocating|to allocate) [\d,]+ bytes"
    r"|(?:RESOURCE_EXHAUSTED|Resource exhausted): .{0,60}"
    r"(?:[Oo]ut of memory (?:while|allocating)|[Ff]ailed to allocate request for)"
    r"|OOM when allocating tensor .{0,200}(?:allocator GPU|device:(?:GPU|gpu):)"
    r"|Out of memory error on GPU|RMM_ERROR_OUT_OF_MEMORY|(?:RMM failure|/rmm/mr/).{0,200}"
    r"(?:out_of_memory|Maximum pool size exceeded)|bad_alloc: .{0,40}CUDA error at: "
    r"|BFCArena::.{0,200}Failed to allocate memory for requested buffer"
    r"|of device memory \(.{0,60}out of memory|CL_MEM_OBJECT_ALLOCATION_FAILURE"
    r"|Memory Object Allocation Failure|[Rr]untime \(out of memory\)"
    r"|Requested amount of GPU memory .{0,40} could not be allocated"
)
"""In the words of the libraries that allocate a GPU's memory."""
_OF_ANOTHER = re.compile(
    r"more than 1EB|on host: CUDA_ERROR_OUT_OF_MEMORY|pinned host memory|not a failure"
)
"""The same words for a number gone wild, for memory of the host, and for what goes on."""
_FAILURE = re.compile(
    r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|NotMet|Resources|Failure)"
    r"(?:\([\w.]+\))?(?: \(see above for traceback\))?(?::|$)"
    r"|(?:.{0,60}[\s:\[])?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|EXCEPTION|CRITICAL)\b[]:)!]"
    r"|.{0,60}(?:cuda runtime error|C(?:UDA|uda) (?:Error|error|failure)|terminate called"
    r"|Check failed|Assertion|Segmentation fault|Bus error|Floating point exception|Killed"
    r"|Illegal instruction|No space left|Disk quota|Permission denied|command not found"
    r"|No such file|cannot open shared object|[Cc]annot allocate memory|oom-kill)"
    r"|(?:Error|ERROR|FATAL|F\d{4})\s|what\(\):|panic: "
)
"""A line that reports a failure, whatever of."""
_CONSEQUENCE = re.compile(
    r"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|SystemExit|exitcode"
    r"|KeyboardInterrupt|BrokenPipe|Broken pipe|[Cc]onnection (?:was )?(?:reset|refused|closed)"
    r"|Connection(?:Reset|Refused|Aborted)?Error|EOFError|communicator was aborted|ncclRemoteError"
    r"|[Ww]atchdog|SignalException|Signals\.SIG|SIGTERM|SIGABRT|remote process exited|Gloo|gloo"
    r"|srun: |slurmstepd: .*CANCELLED|MPI_ABORT|mpirun|wandb|make: |BrokenProcessPool|CommClosed"
    r"|DataLoader worker .* exited|Background workers died|terminate called|Aborted|core dumped"
    r"|To prevent data corruption|Some NCCL operations have failed|Failed to execute operation"
    r"|failed \(exit|returned non-zero|XlaRuntimeError: (?:ABORTED|CANCELLED)|socketProgress"
    r"|unhandled cuda error|ncclUnhandledCudaError|Blas \w+ launch failed"
    r"|cuDNN failed to initialize|root cause above|failed to build engine|Assertion .0' failed"
    r"|unable to (?:load|allocate)|error loading model"
)
"""What launchers, peers and shells say of a failure that was another's."""
_GOES_ON = re.compile(
    r"\b(?:skip\w*|re-?try\w*|retries|recover\w*|fall\w* ?back|try\w* again|continu\w*|ignor\w*"
    r"|caught|reduc\w+|halv\w+)\b",
    re.IGNORECASE,
)
_MAYBE = re.compile(
    r"warn|hint|\b(?:if|when|avoid|in case|prevent|note|tip)\b"
    r"|\b(?:may|might|could|can) (?:cause|run|go|lead|result|be)\b",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"(?:\x1b\[[\d;]*m|\[(?:rank|default|\d+,)?\d+\](?:<std\w+>)?:\s?|\(\w+ pid=\d+[^)]*\)\s"
    r"|\d+:\s|\[?\d{4}[-/]\d\d[-/]\d\d[ T:][\d:.,]+\]?:?\s)+"
)
"""Whose line it is, and when, before what it says."""
_NOISE = re.compile(
    r"\s|Traceback|During handling|The above exception|frame #|\[bt\]|Stack trace|#\d+ |Hint:"
    r"|[-=*#^]+|Exception raised from|wandb|For simplicity|Compile with|CUDA kernel errors"
    r"|For debugging|$"
)
"""Lines that belong to an error rather than to a program that goes on."""
_FOLLOWING = 8
"""Lines after the first of an error that may say what it is."""
_STALE_ERROR, _STALE_LINE = 40, 12
"""So many other lines after one that says so, and the program has gone on since."""


def ran_out_of_gpu_memory(log_tail: str) -> bool:
    """Whether a program that failed did so for want of GPU memory, by the end of its log.

    Frameworks word it in many ways, and programs print the same words when they go on: a batch
    that is skipped, a hint at the start, a smaller batch that is tried. So what counts is the last
    error of the log that is no mere consequence (a launcher that reports its child, ranks that
    lose a peer): that one must say it.

    Args:
        log_tail: The last lines of its log.
    """
    raw = (line.rsplit("\r", 1)[-1] for line in log_tail.splitlines())
    lines = [_PREFIX.sub("", line, count=1) if _PREFIX.match(line) else line for line in raw]
    others = 0
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        noise = _NOISE.match(line) is not None and "what():" not in line
        if not noise and _FAILURE.match(line.lstrip()):
            says_so = _says_so(line) or _says_so(" ".join(lines[at : at + _FOLLOWING]))
            if says_so and not _goes_on(line):
                return others <= _STALE_ERROR
            if not says_so and not _CONSEQUENCE.search(line):
                return False
        elif others <= _STALE_LINE and _is_bare_word(line):
            return True
        others += not noise and not _CONSEQUENCE.search(line)
    return False


def _says_so(text: str) -> bool:
    return _SAYS_SO.search(text) is not None and _OF_ANOTHER.search(text) is None


def _is_bare_word(line: str) -> bool:
    """Whether *line*, which looks like no error, says so all the same: no code, no hint."""
    found = _SAYS_SO.search(line)
    if found is None or line.startswith((" ", "\t")) or not _says_so(line):
        return False
    return not _MAYBE.search(line[: found.start()]) and not _goes_on(line)


def _goes_on(line: str) -> bool:
    return _GOES_ON.search(line) is not None and "try setting" not in line


_SIZES = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_SIZES |= {"kB": 10**3, "KB": KIB, "MB": MIB, "GB": GIB, "bytes": 1}
_TRIED = re.compile(
    r"(?:[Tt]ried to allocate|[Tt]rying to allocate|[Oo]ut of memory allocating|[Rr]equest for"
    r"|memory to allocate|Cannot allocate|requested buffer of size|Requested memory:)"
    r" ([\d,]+(?:\.\d+)?) ?(KiB|MiB|GiB|TiB|kB|KB|MB|GB|bytes|B)?"
)


def tried_bytes(log_tail: str) -> int | None:
    """What the allocation that failed asked for; None where the log does not tell."""
    found = _TRIED.findall(log_tail)
    if not found:
        return None
    number, unit = found[-1]
    return round(float(number.replace(",", "")) * _SIZES[unit or "bytes"])


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
