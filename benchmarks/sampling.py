"""What it costs to sample a node with eight GPUs and sixteen shared runs, as its agent and runs do.

    PYTHONPATH=. python benchmarks/sampling.py [SECONDS]

A whole site on NVIDIA's imitation of NVML, with sixteen real runs, two on each GPU. Beside it this
process does what the agent does once a second (`Sampler.tick`, `GpuWatch.look`; with each heartbeat
the ports) and what the flow of each run does every two (`GpuUse.read`), and tells the processor
time of each by that of the clock; also what the agent takes for everything. Exits 1 above 1 % of a
core in all. The imitation names no processes, and a real driver adds its own time in the kernel.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil

from headway.node.gpu_watch import GpuWatch
from headway.node.sampler import Sampler
from headway.run.follow import GPU_EVERY_S
from headway.run.followed import GpuUse
from headway.runtime.listening import listening_ports
from headway.site import current_site
from tests.nvml.imitation import ImitatedGpus
from tests.support.site import live_site

LIMIT_FRAC = 0.01
GPUS, RUNS = 8, 16
_HEARTBEAT_EVERY = 5
SLEEPS = {"command": ["python", "-c", "import time; time.sleep(3600)"]}
NEEDS = {"gpus": 1, "gpu_memory": "30GiB", "host_memory": "64MiB", "cpus": 0.05}


def main(seconds: int) -> int:
    """Bring the site up, and sample it once a second for *seconds*."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        gpus = ImitatedGpus(folder, [f"GPU-{n}" for n in range(GPUS)])
        with live_site(folder / "home", "process", **gpus.environment()) as site:
            job = SLEEPS | {"resources": NEEDS}
            runs = [site.submit(folder, name=f"run-{n}", **job) for n in range(RUNS)]
            held = [site.until(run, "Running")["lease"]["gpus"][0]["uuid"] for run in runs]
            assert sorted(held) == sorted([f"GPU-{n}" for n in range(GPUS)] * (RUNS // GPUS))
            os.environ.update(site.env)
            return _measure(seconds, psutil.Process(site.worker_pid()))


def _measure(seconds: int, agent: psutil.Process) -> int:
    here = current_site()
    sampler, watch, use = Sampler(here), GpuWatch(here), GpuUse()
    containers = here.runtime.containers()
    assert len(containers) == RUNS
    status = SimpleNamespace(pids=containers[0].pids, run_id=containers[0].run_id)
    sampling_s = reading_s = 0.0
    watch.look(sampler.tick())
    before, start_s = agent.cpu_times(), time.monotonic()
    for n in range(seconds):
        at_s = time.process_time()
        watch.look(sampler.tick())
        if n % _HEARTBEAT_EVERY == 0:
            listening_ports()
        sampling_s += time.process_time() - at_s
        at_s = time.process_time()
        use.read(here.gpus, status, {"GPU-0"})  # type: ignore[arg-type] # it asks no more of it
        reading_s += time.process_time() - at_s
        time.sleep(max(0.0, start_s + n + 1 - time.monotonic()))
    after, wall_s = agent.cpu_times(), time.monotonic() - start_s
    all_s = after.user + after.system - before.user - before.system
    sampling, reading = sampling_s / wall_s, RUNS / GPU_EVERY_S * reading_s / wall_s
    print(f"the agent's sampling {sampling:.2%} of a core, of {all_s / wall_s:.2%} in all")
    print(f"the readings of {RUNS} runs {reading:.2%} of a core")
    return 0 if sampling + reading <= LIMIT_FRAC else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
