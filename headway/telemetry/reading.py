"""One reading of a whole node."""

from headway.clock import Clock
from headway.errors import TelemetryError
from headway.model.node import NodeReading
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
