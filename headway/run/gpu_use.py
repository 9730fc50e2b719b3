"""What a container was seen to use of its node's GPUs."""

from dataclasses import dataclass, field

from headway.errors import TelemetryError
from headway.model.node import GpuReading
from headway.runtime.port import ContainerStatus
from headway.telemetry.port import GpuSensors
from headway.telemetry.reading import with_runs

_FEWEST_READINGS = 5
"""Of utilisation; a run of a few seconds has hardly begun."""


@dataclass(slots=True)
class GpuUse:
    """What one container was seen to use while it ran."""

    peaks: dict[str, int] = field(default_factory=dict)
    """Most that its processes held together of each GPU, in bytes, by uuid."""
    newest: tuple[GpuReading, ...] = ()
    """The newest reading of the node's GPUs."""
    _busy: list[float] = field(default_factory=list)

    @property
    def peak_bytes(self) -> int | None:
        """Most that it held of any one GPU; None without readings."""
        return max(self.peaks.values(), default=None)

    @property
    def utilisation_frac(self) -> float | None:
        """Mean over the readings in which only it was on a GPU; None with too few."""
        enough = len(self._busy) >= _FEWEST_READINGS
        return sum(self._busy) / len(self._busy) if enough else None

    def read(self, sensors: GpuSensors, status: ContainerStatus) -> None:
        """Read the GPUs now, for the processes of *status*."""
        if not status.pids:
            return
        try:
            readings = sensors.read()
        except TelemetryError:
            return  # the node's worker reports it; a peak is never guessed
        run_of_pid = dict.fromkeys(status.pids, status.run_id)
        self.newest = tuple(with_runs(gpu, run_of_pid) for gpu in readings)
        for gpu in self.newest:
            own = [each for each in gpu.processes if each.pid in run_of_pid]
            # NVML does not say whose kernels run: only a GPU that it has alone tells of it.
            if own and len(own) == len(gpu.processes) and gpu.utilisation_frac is not None:
                self._busy.append(gpu.utilisation_frac)
            held = [each.memory_bytes for each in own if each.memory_bytes is not None]
            if held:
                self.peaks[gpu.uuid] = max(self.peaks.get(gpu.uuid, 0), sum(held))
