"""A ledger that has seen everything once: for what must show each of it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from headway.ledger import Ledger
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Demand, Resource
from headway.model.node import Capacity, Gpu, GpuReading, HostReading, Node, NodeReading
from headway.model.progress import ProgressPoint
from headway.model.run import STEPS, Exit, ExitKind, Measurement, Prediction, StepState
from headway.model.run_warning import Silent, SilentFailure
from headway.model.telemetry import TelemetryPoint
from headway.model.trace import Trace
from headway.units import GIB
from tests.support.fence import fence_of, release
from tests.support.leading import grant_in_term, wait_in_term

NODE = "node-a"
RUNNING, ENDED = "11111111-run", "22222222-run"
_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_HOST = HostReading(64 * GIB, 4 * GIB, 0.25, 100 * GIB)


def populate(ledger: Ledger) -> None:
    """A node that works, one that lost a GPU, and runs in every state."""
    _nodes(ledger)
    for waiting, resource in (("w1", Resource.GPU_MEMORY), ("w2", Resource.CPUS)):
        _enqueue(ledger, waiting)
        wait_in_term(ledger, waiting, resource, "too little")
    _start(ledger, RUNNING)
    for ended, runtime_s in ((ENDED, 100.0), ("e2", 80.0)):
        _start(ledger, ended)
        for step in STEPS:
            ledger.steps.ended(fence_of(ledger, ended), step, StepState.DONE, "well")
        got = Measurement(runtime_s, 3 * GIB, gpu_peak_bytes=2 * GIB, cpu_s=50.0, cost=0.1)
        assert ledger.runs.finish(fence_of(ledger, ended), Exit(ExitKind.OK, 0, "ended well"), got)
        release(ledger, ended)
        ledger.traces.add([Trace("resnet50", "v100", 1, 32, runtime_s=runtime_s, run_id=ended)])


def begin(ledger: Ledger, run_id: str, metrics: Sequence[Mapping[str, float]]) -> None:
    """Let a run that waits run on `NODE`, and tell these metrics one after the other."""
    demand = Demand(1 * GIB, cpus=0.5)
    ledger.runs.predict(fence_of(ledger, run_id), Prediction(), demand)
    lease = grant_in_term(ledger, run_id, NODE, demand, ttl_s=600.0)
    ledger.runs.begin(lease.fence, container=run_id, runtime="process", ttl_s=60.0)
    points = [ProgressPoint(float(n), n, None, 9, each) for n, each in enumerate(metrics, 1)]
    ledger.progress.append(lease.fence, points, first=0)


def _nodes(ledger: Ledger) -> None:
    gpus = [Gpu(f"GPU-{n}", n, "V100", 16 * GIB) for n in range(3)]
    read = tuple(
        GpuReading(
            gpu.uuid, gpu.index, gpu.name, gpu.memory_bytes, 2 * GIB, 0.5, temperature_c=50.0,
            power_w=200.0, pcie_rx_bytes_per_s=1e9, pcie_tx_bytes_per_s=2e9,
            nvlink_rx_bytes_per_s=3e9, nvlink_tx_bytes_per_s=4e9,
        )
        for gpu in gpus[:2]
    )  # fmt: skip
    for name, held, reading in (
        (NODE, gpus[:2], NodeReading(_MOMENT, _HOST, read)),
        ("node-b", gpus[2:], NodeReading(_MOMENT, _HOST, (), lost_gpus={"GPU-2": "NVML error 15"})),
    ):
        node = Node(name, "gpu", Capacity(8.0, 64 * GIB, tuple(held)))
        ledger.nodes.register(node, boot_id="boot", worker_token=name)
        assert ledger.nodes.heartbeat(name, name, reading)


def _enqueue(ledger: Ledger, run_id: str) -> None:
    job = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
    ledger.runs.enqueue(
        run_id, job, name=f"brave-{run_id}", owner="me", team="t", pool="gpu", priority=0,
        submitted_at=ledger.now(),
    )  # fmt: skip


def _start(ledger: Ledger, run_id: str) -> None:
    _enqueue(ledger, run_id)
    demand = Demand(4 * GIB, gpus=1, gpu_memory_bytes=3 * GIB)
    said = Prediction(90.0, 70.0, 95.0, 4 * GIB, 3 * GIB, cost=0.1, basis="resnet50, 3 traces")
    ledger.runs.predict(fence_of(ledger, run_id), said, demand)
    lease = grant_in_term(ledger, run_id, NODE, demand, ttl_s=600.0)
    ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    for step in STEPS:
        ledger.steps.started(fence_of(ledger, run_id), step)
    points = [ProgressPoint(0.1 * n, 10 * n, None, 1000, {"loss": 1 / n}) for n in range(1, 6)]
    ledger.progress.append(fence_of(ledger, run_id), points, first=0)
    ledger.progress_snapshots.keep(
        fence_of(ledger, run_id),
        ProgressSnapshot(run_id, 1, ledger.now(), 0.5, 0.05, 9.5, 8.0, 11.0),
    )
    unused = SilentFailure(Silent.GPU_UNUSED, run_id, lease.gpus[0].uuid, 0.0, 0.02, "idles")
    ledger.warnings.keep(fence_of(ledger, run_id), [unused])
    held = TelemetryPoint(
        _MOMENT, lease.gpus[0].uuid, used_bytes=2 * GIB, run_bytes={run_id: 2 * GIB}
    )
    ledger.telemetry.append(NODE, [held])
