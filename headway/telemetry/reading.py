"""One reading of a whole node."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headway.clock import Clock
from headway.model.node import GpuReading, NodeReading
from headway.telemetry.errors import TelemetryError
from headway.telemetry.identity import identified
from headway.telemetry.port import GpuSensors, HostSensors


def node_reading(gpus: GpuSensors, host: HostSensors, clock: Clock) -> NodeReading:
    """Read the host and its GPUs now.

    GPUs that cannot be read are None, with the error's own words: nothing is
    known of them, which is never the same as nothing being used. Never raises
    for them, since the host's reading is worth having alone. A GPU that is lost
    is named, and the others are read.
    """
    try:
        read, error = gpus.read(), ""
    except TelemetryError as failure:
        read, error = None, str(failure)
    return NodeReading(
        at=clock.now(), host=host.read(), gpus=read, gpu_error=error, lost_gpus=gpus.lost()
    )


def with_owners(
    reading: NodeReading,
    run_of_pid: Mapping[int, str],
    run_host_bytes: Mapping[str, int],
    *,
    closed: str = "",
) -> NodeReading:
    """*reading* with what of it belongs to runs of this site.

    Args:
        reading: The node now.
        run_of_pid: The run of each process that lives in a container.
        run_host_bytes: Host memory that each run's container holds.
        closed: Why the node starts nothing now; empty where it does.
    """
    return replace(
        reading,
        gpus=reading.gpus and tuple(_told(with_runs(gpu, run_of_pid)) for gpu in reading.gpus),
        run_host_bytes=run_host_bytes,
        closed=closed,
    )


def without_processes(gpus: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
    """*gpus* as where the driver names no process: whose those are is not known."""
    return tuple(replace(gpu, processes=()) for gpu in gpus)


def with_runs(gpu: GpuReading, run_of_pid: Mapping[int, str]) -> GpuReading:
    """*gpu* with the run of each of its processes that *run_of_pid* knows."""
    owned = (replace(each, run_id=run_of_pid.get(each.pid, "")) for each in gpu.processes)
    return replace(gpu, processes=tuple(owned))


def _told(gpu: GpuReading) -> GpuReading:
    """*gpu* with whose each of its processes is that is no run's."""
    told = (each if each.run_id else identified(each) for each in gpu.processes)
    return replace(gpu, processes=tuple(told))
