"""What telemetry costs: a node with 8 GPUs and 50 processes on them, read at 1 Hz.

    PYTHONPATH=. python benchmarks/telemetry_cost.py [SECONDS]

The GPUs are the tests' stub library behind the real pynvml; a real driver
adds its own time in the kernel. Exits 1 above 2 % of a core.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from headway.clock import SystemClock
from headway.telemetry.gpu import NvmlGpus
from headway.telemetry.host import NodeHost
from headway.telemetry.reading import node_reading
from headway.units import GIB
from tests.nvml.stub import STATE_VARIABLE, StubGpus, build_stub

LIMIT_FRAC = 0.02


def main(seconds: int) -> int:
    """Read once a second for *seconds*; print the CPU time it took."""
    with tempfile.TemporaryDirectory() as folder:
        library = build_stub(Path(folder))
        stub = StubGpus(Path(folder) / "gpus.state")
        os.environ[STATE_VARIABLE] = str(stub.path)
        for n in range(8):
            held = {1000 * n + p: GIB for p in range(6 + (n < 2))}
            stub.add(f"GPU-{n}", util=50, nvlink_rx=0, nvlink_tx=0, processes=held)
        gpus, host, clock = NvmlGpus(library), NodeHost(Path(folder)), SystemClock()
        reading = node_reading(gpus, host, clock)
        assert sum(len(gpu.processes) for gpu in reading.gpus or ()) == 50
        cpu_s, start_s = time.process_time(), time.monotonic()
        for n in range(seconds):
            node_reading(gpus, host, clock)
            time.sleep(max(0.0, start_s + n + 1 - time.monotonic()))
        used_frac = (time.process_time() - cpu_s) / (time.monotonic() - start_s)
    print(f"8 GPUs, 50 processes, {seconds} readings at 1 Hz: {used_frac:.2%} of a core")
    return 0 if used_frac < LIMIT_FRAC else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
