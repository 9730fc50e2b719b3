"""Measures the machine that it runs on, within half a minute, and prints one line of JSON.

It runs inside the image that the site has named, alone on the GPUs that it sees, which are alike.
Nothing but the standard library has to be there; without PyTorch the GPU is not measured.

    probe_program.py FOLDER CPUS
"""

import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "headway-probe "
"""Before the line that counts: an image may print more."""
_GPU_SIDE, _CPU_SIDE = 8192, 2048
"""Of square matrices: large enough that a GPU is busy, small enough for one of 4 GiB."""
_COPY_BYTES = 256 << 20
_BLOCK_BYTES, _MOST_BLOCKS = 8 << 20, 32
_DISK_S = 4.0


def best_rate(
    step: Callable[[], object], amount: float, *, budget_s: float, settle: Callable[[], object]
) -> float:
    """The highest *amount* a second that *step* reached in *budget_s*; *settle* waits for it."""
    step()  # the first is slower: memory is got, kernels are chosen
    settle()
    calls, best, end_s = 1, 0.0, time.perf_counter() + budget_s
    while True:
        begun_s = time.perf_counter()
        for _ in range(calls):
            step()
        settle()
        took_s = max(time.perf_counter() - begun_s, 1e-9)
        best = max(best, calls * amount / took_s)
        if time.perf_counter() >= end_s:
            return best
        if took_s < 0.05:
            calls *= 2


def main(folder: str, cpus: str) -> None:
    """Measure, and tell."""
    found: dict[str, Any] = {"node": node_speeds(Path(folder))}
    try:
        torch = importlib.import_module("torch")  # the image's; headway has none
    except ImportError as error:
        found["no_gpu"] = f"the image has no PyTorch: {error}"[:300]
    else:
        torch.set_num_threads(max(int(float(cpus)), 1))
        a, b = torch.rand(2, _CPU_SIDE, _CPU_SIDE)
        found["node"]["matmul_flops_per_s"] = best_rate(
            lambda: a @ b, 2.0 * _CPU_SIDE**3, budget_s=2.0, settle=_nothing
        )
        if torch.cuda.is_available():
            found["gpu"] = gpu_speeds(torch)
        else:
            found["no_gpu"] = "PyTorch sees no GPU"
    sys.stdout.write(f"\n{MARK}{json.dumps(found)}\n")


def node_speeds(folder: Path) -> dict[str, float | None]:
    """Of one core, and of the disk below *folder*."""
    data = os.urandom(_BLOCK_BYTES)
    hashed = best_rate(
        lambda: hashlib.sha256(data).digest(), len(data), budget_s=1.0, settle=_nothing
    )
    path, begun_s, blocks = folder / "probe", time.perf_counter(), 0
    with path.open("wb", buffering=0) as file:
        while blocks < _MOST_BLOCKS and time.perf_counter() - begun_s < _DISK_S:
            blocks += file.write(data) // _BLOCK_BYTES
        os.fsync(file.fileno())
    written = blocks * _BLOCK_BYTES / (time.perf_counter() - begun_s)
    begun_s, got = time.perf_counter(), 0
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while time.perf_counter() - begun_s < _DISK_S and (part := file.read(_BLOCK_BYTES)):
            got += len(part)
    read = got / (time.perf_counter() - begun_s)
    path.unlink()
    speeds = {"hash": hashed, "write": written, "read": read}
    return {**{f"{name}_bytes_per_s": each for name, each in speeds.items()},
            "matmul_flops_per_s": None}  # fmt: skip


def gpu_speeds(torch: Any) -> dict[str, float | None]:
    """Of the first GPU, and of the way from it to the second, where there are two."""
    torch.backends.cuda.matmul.allow_tf32 = False
    settle = torch.cuda.synchronize

    def product(kind: Any) -> float:
        a, b = torch.rand(2, _GPU_SIDE, _GPU_SIDE, device="cuda").to(kind)
        return best_rate(
            lambda: torch.matmul(a, b), 2.0 * _GPU_SIDE**3, budget_s=2.0, settle=settle
        )

    def copy(to: Any, source: Any, times: int = 1) -> float:
        return best_rate(
            lambda: to.copy_(source, non_blocking=True), times * _COPY_BYTES, budget_s=1.0,
            settle=settle,
        )  # fmt: skip

    def empty(**where: Any) -> Any:
        return torch.empty(_COPY_BYTES, dtype=torch.uint8, **where)

    here, there = empty(device="cuda"), empty(device="cuda")
    found: dict[str, float | None] = {
        "fp32_flops_per_s": product(torch.float32),
        "fp16_flops_per_s": product(torch.float16),
        "copy_bytes_per_s": copy(here, there, 2),
        **dict.fromkeys(
            ("bf16_flops_per_s", "to_gpu_bytes_per_s", "from_gpu_bytes_per_s", "peer_bytes_per_s")
        ),
    }
    try:  # what not every GPU, and not every limit of the container, allows
        if torch.cuda.is_bf16_supported():
            found["bf16_flops_per_s"] = product(torch.bfloat16)
        if torch.cuda.device_count() > 1:
            found["peer_bytes_per_s"] = copy(empty(device="cuda:1"), here)
        pinned = empty(pin_memory=True)
        found["to_gpu_bytes_per_s"] = copy(here, pinned)
        found["from_gpu_bytes_per_s"] = copy(pinned, here)
    except RuntimeError as error:
        sys.stderr.write(f"not measured: {error}\n")
    return found


def _nothing() -> None:
    """What is measured has ended when it returns."""


if __name__ == "__main__":
    main(*sys.argv[1:])
