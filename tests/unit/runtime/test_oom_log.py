"""Out of GPU memory is told from the log's end; nothing else is taken for it."""

import re
from pathlib import Path

import pytest

from headway.runtime.outcome import ran_out_of_gpu_memory, tried_bytes
from headway.units import GIB, MIB

DATA = Path(__file__).parents[2] / "data" / "gpu_memory"


def texts(name: str) -> list[object]:
    """Each text of a file with its source: a public thread, or the command that failed."""
    _, *parts = re.split("^=== ", (DATA / name).read_text(), flags=re.MULTILINE)
    pairs = [part.split("\n", 1) for part in parts]
    return [pytest.param(text, id=f"{n}-{source}") for n, (source, text) in enumerate(pairs)]


RAN_OUT, OTHERS = texts("ran_out.txt"), texts("others.txt")


def test_there_are_enough_of_both() -> None:
    assert len(RAN_OUT) >= 30
    assert len(OTHERS) >= 200


@pytest.mark.parametrize("text", RAN_OUT)
def test_every_wording_is_recognised(text: str) -> None:
    assert ran_out_of_gpu_memory(text)
    # Also with what a launcher or a shell adds, and behind the lines of a long run.
    before = "".join(f"Epoch {n}: loss {1 / (n + 1):.4f}\n" for n in range(300))
    after = "wandb: Run history:\nsrun: error: node: task 0: Exited with exit code 1\n"
    assert ran_out_of_gpu_memory(before + text + after)


@pytest.mark.parametrize("text", OTHERS)
def test_no_other_failure_is_taken_for_it(text: str) -> None:
    assert not ran_out_of_gpu_memory(text)


HANDLED = (
    "| WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    "CUDA out of memory. Tried to allocate 512.00 MiB; retrying with batch size 16\n",
    "WARNING:root:batch 17: CUDA out of memory, skipped\n",
    "Hint: if you see CUDA out of memory, lower --batch-size\n",
)


@pytest.mark.parametrize("said", HANDLED)
@pytest.mark.parametrize("text", ["", *OTHERS[::7]])
def test_a_program_that_goes_on_after_it_did_not_fail_for_it(said: str, text: str) -> None:
    later = "".join(f"step {n} loss 0.3\n" for n in range(60))
    assert not ran_out_of_gpu_memory(said + text)
    assert not ran_out_of_gpu_memory(said + later + text)


def test_an_error_that_was_shown_and_survived_is_forgotten_after_a_while() -> None:
    shown = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total)\n"
    later = "".join(f"step {n} loss 0.3\n" for n in range(60))
    assert ran_out_of_gpu_memory(shown)
    assert not ran_out_of_gpu_memory(shown + later)
    assert not ran_out_of_gpu_memory(shown + "KeyError: 'loss'\n")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0", 1.5 * GIB),
        ("Tried to allocate 20.00 MiB\nlater: Tried to allocate 2.00 GiB", 2 * GIB),
        (
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.",
            4770354232,
        ),
        ("Out of memory allocating 8,589,934,592 bytes (allocated so far: 1 byte)", 8 * GIB),
        ("Failed to allocate request for 176.00MiB (184549376B) on device", 176 * MIB),
        ("Failed to allocate memory for requested buffer of size 8388608000", 8388608000),
        ("- Requested memory: 33554432", 33554432),
        ("CUBLAS_STATUS_ALLOC_FAILED", None),
    ],
)
def test_what_was_asked_for_is_read_where_it_is_said(text: str, asked: float | None) -> None:
    assert tried_bytes(text) == asked
