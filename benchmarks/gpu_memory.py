"""What a real GPU tells of its memory, against what headway makes of it. Needs one GPU.

    python benchmarks/gpu_memory.py

Allocates through the driver's own library, so no framework is needed; where PyTorch is
installed its words for an exhausted GPU are put to the test, too. Prints what was read,
and fails where headway would misread it.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys

from headway.clock import SystemClock
from headway.model.lease import GpuGrant, Lease
from headway.model.node import Capacity, GpuReading, Node
from headway.policy.headroom import compute_headroom
from headway.runtime.outcome import ran_out_of_gpu_memory, tried_bytes
from headway.telemetry.gpu import NvmlGpus
from headway.telemetry.reading import node_reading, with_owners
from headway.units import GIB, format_size
from tests.ports.telemetry import FakeHost

HELD_BYTES = 2 * GIB
OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""
TORCH = "import torch; x = [torch.empty(1 << 33, device='cuda') for _ in range(100)]"


class Driver:
    """A context on the first GPU, and memory held in it."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.check(self.lib.cuInit(0))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.lib.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.lib.cuCtxCreate_v2(ctypes.byref(context), 0, device))

    def allocate(self, size_bytes: int) -> int:
        """CUDA's result of allocating that much; it is never given back."""
        pointer = ctypes.c_uint64()
        result: int = self.lib.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        return result

    def words(self, result: int) -> str:
        """The driver's name and words for *result*."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.lib.cuGetErrorName(result, ctypes.byref(name))
        self.lib.cuGetErrorString(result, ctypes.byref(text))
        return f"{(name.value or b'').decode()}: {(text.value or b'').decode()}"

    def check(self, result: int) -> None:
        """Raise for anything but success."""
        if result:
            raise SystemExit(f"the driver says {self.words(result)}")


def main() -> None:
    """Read, hold, read again, exhaust."""
    gpus = NvmlGpus()
    known, (before, *_) = gpus.gpus(), gpus.read()
    show("idle", before)
    node = Node("n", "pool", Capacity(1, GIB, known))
    idle = compute_headroom(node, [], node_reading(gpus, FakeHost(), SystemClock())).gpus[0]
    print(f"idle by headway: {idle.idle}, headroom {format_size(idle.free_bytes)}")

    driver = Driver()
    driver.check(driver.allocate(HELD_BYTES))
    during = next(gpu for gpu in gpus.read() if gpu.uuid == before.uuid)
    show(f"holding {format_size(HELD_BYTES)}", during)
    own = [each for each in during.processes if each.pid == os.getpid()]
    told = bool(own) and own[0].memory_bytes is not None
    print(f"NVML tells of this process ({os.getpid()}): {told}")

    reading = with_owners(node_reading(gpus, FakeHost(), SystemClock()), {os.getpid(): "run"}, {})
    half_bytes = known[0].memory_bytes // 2
    grants = (GpuGrant(before.uuid, half_bytes),)
    lease = Lease(1, "run", 1, "n", "t", GIB, 1.0, grants, {}, reading.at, reading.at)
    held = compute_headroom(node, [lease], reading).gpus[0]
    stranger = compute_headroom(node, [], reading).gpus[0]
    print(f"beside a lease of half of it: {format_size(held.free_bytes)}, foreign {held.foreign}")
    print(f"as a stranger's: {format_size(stranger.free_bytes)}, idle {stranger.idle}")
    if stranger.idle:
        raise SystemExit("a GPU that somebody holds 2 GiB of is taken for idle")
    if told and held.free_bytes < half_bytes - before.used_bytes - GIB:
        raise SystemExit("the run's own use counts beside its grant")

    if importlib.util.find_spec("torch") is not None:
        torch_says()
    result = 0
    while not result:
        result = driver.allocate(4 * GIB)
    print(f"the driver, exhausted: {driver.words(result)}")
    if result != OUT_OF_MEMORY or not ran_out_of_gpu_memory(driver.words(result)):
        raise SystemExit("the driver's words are not recognised")


def show(when: str, gpu: GpuReading) -> None:
    """Print one reading."""
    used, total = format_size(gpu.used_bytes), format_size(gpu.memory_bytes)
    print(f"{when}: {gpu.name} ({gpu.uuid}), {used} of {total} used")
    print(f"  of it the driver keeps {format_size(gpu.driver_bytes)}")
    for each in gpu.processes:
        size = "?" if each.memory_bytes is None else format_size(each.memory_bytes)
        print(f"  process {each.pid}: {size}")


def torch_says() -> None:
    """Exhaust the GPU from PyTorch in a process of its own, and read its last words."""
    done = subprocess.run(
        [sys.executable, "-c", TORCH], stderr=subprocess.PIPE, text=True, check=False
    )
    print(done.stderr.strip().splitlines()[-1])
    print(f"recognised: {ran_out_of_gpu_memory(done.stderr)}; asked {tried_bytes(done.stderr)}")
    if not ran_out_of_gpu_memory(done.stderr):
        raise SystemExit("PyTorch's words are not recognised")


if __name__ == "__main__":
    main()
