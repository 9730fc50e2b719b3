"""How an attempt ended."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headway.model.run import ExitKind
from headway.runtime.outcome import classify_exit, ended_by_restart
from headway.runtime.port import ContainerState, ContainerStatus


def ended(code: int | None, *, oom: bool = False, error: str = "") -> ContainerStatus:
    return ContainerStatus("c", "r", 1, ContainerState.EXITED, code, oom_killed=oom, error=error)


@pytest.mark.parametrize(
    ("status", "log", "kind", "advice"),
    [
        (ended(0), "CUDA out of memory, retrying", ExitKind.OK, "done"),
        (ended(0, oom=True), "", ExitKind.OK, "raise|higher"),
        (ended(1), "", ExitKind.FAILED, "exit 1.*log"),
        (ended(127), "sh: 1: mkfifo: not found\n", ExitKind.FAILED, "mkfifo: not found.; correct"),
        (ended(126), "", ExitKind.FAILED, "executable"),
        (ended(135), "", ExitKind.FAILED, "resources.shm"),
        (ended(1), "RuntimeError: ... insufficient shared memory (shm)", ExitKind.FAILED, "shm"),
        (ended(139), "", ExitKind.FAILED, "segmentation"),
        (ended(1, error="stopped with 70 processes"), "", ExitKind.FAILED, "70 processes"),
        (ended(137, oom=True), "", ExitKind.OUT_OF_MEMORY, "host_memory"),
        (ended(1, oom=True), "", ExitKind.OUT_OF_MEMORY, "exit 1"),
        (ended(137), "", ExitKind.INFRASTRUCTURE, "exit 137"),
        (ended(143), "", ExitKind.INFRASTRUCTURE, "exit 143"),
        (ended(None), "", ExitKind.INFRASTRUCTURE, "without an exit code"),
        (ended(1), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
         ExitKind.GPU_OUT_OF_MEMORY, "gpu_memory"),
        (ended(1), "OOM when allocating tensor with shape[64,512] on /job:x/device:GPU:0",
         ExitKind.GPU_OUT_OF_MEMORY, "batch size"),
        (ended(134), "failed call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY",
         ExitKind.GPU_OUT_OF_MEMORY, "gpu_memory"),
        (ContainerStatus("c", "r", 1, ContainerState.CREATED, error="no such device"), "",
         ExitKind.INFRASTRUCTURE, "no such device"),
    ],
)  # fmt: skip
def test_each_end_has_its_kind_and_its_advice(
    status: ContainerStatus, log: str, kind: ExitKind, advice: str
) -> None:
    found = classify_exit(status, log_tail=log)
    assert found.kind is kind
    assert found.code == status.exit_code
    assert re.search(advice, found.message), found.message
    assert "\n" not in found.message


def test_what_headway_did_itself_comes_first() -> None:
    assert classify_exit(ended(0), timed_out=True).kind is ExitKind.TIMED_OUT
    assert classify_exit(ended(143), timed_out=True).kind is ExitKind.TIMED_OUT


TRACEBACK = """Epoch 3: 100%
{"headway": {"iteration": 3}}
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("shapes (3,4) and (5,) differ")
ValueError: shapes (3,4) and (5,) differ
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (TRACEBACK, '"ValueError: shapes (3,4) and (5,) differ"'),
        # What a launcher writes afterwards does not hide it.
        (
            TRACEBACK + "wandb: done\n[rank0] exiting\n",
            '"ValueError: shapes (3,4) and (5,) differ"',
        ),
        ("torch.cuda.Exc\nmy.pkg.BadConfig_Error: no lr\n", '"my.pkg.BadConfig_Error: no lr"'),
        ("loading\nfatal: cannot open data.bin\n\n", '"fatal: cannot open data.bin"'),
        ("  5%|\r 10%|\rbroken pipe", '"broken pipe"'),
        ("\x1b[31mboom\x1b[0m\n", '"boom"'),
        ("\x1b]0;title\x07rm \x9b31m\u202e", '"rm \\x9b31m\\u202e"'),
        ('{"headway": {"iteration": 3}}\n', None),
        ("", None),
        ("x" * 5000, f'"{"x" * 319}…"'),
    ],
)
def test_a_failure_is_told_in_the_programs_last_words(log: str, words: str | None) -> None:
    message = classify_exit(ended(1), log_tail=log).message
    said = "" if words is None else f": {words}"
    assert message == f"the program failed (exit 1){said}; look at the end of its log"


BOOT = datetime(2026, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("status", "after_boot", "restart"),
    [
        (ended(None), None, True),  # the process runtime knows nothing of its end
        (ended(255), True, True),  # as Docker notes when the power was lost
        (ended(137), False, True),  # by the machine's shutdown
        (ended(143), False, True),
        (ended(1), False, False),  # its own failure, which nobody had seen before
        (ended(0), True, False),
        (ended(137, oom=True), False, False),
    ],
)
def test_what_a_restart_of_the_machine_ended_is_told_from_an_end_of_its_own(
    status: ContainerStatus, after_boot: bool | None, restart: bool
) -> None:
    ended_at = None if after_boot is None else BOOT + (HOUR if after_boot else -HOUR)
    old = replace(status, started_at=BOOT - 5 * HOUR, ended_at=ended_at)
    assert ended_by_restart(old, BOOT) is restart
    later = replace(status, started_at=BOOT + HOUR, ended_at=BOOT + 2 * HOUR)
    assert not ended_by_restart(later, BOOT)
    assert not ended_by_restart(status, BOOT)
