"""What following a container to its end found, and what it was seen to use of its GPUs."""

from collections.abc import Collection
from dataclasses import dataclass, field

from headway.model.node import GpuReading
from headway.model.run import Exit
from headway.runtime.outcome import classify_exit
from headway.runtime.port import ContainerStatus
from headway.telemetry.errors import TelemetryError
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
    """The newest reading of the GPUs that it was granted."""
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

    def read(self, sensors: GpuSensors, status: ContainerStatus, granted: Collection[str]) -> None:
        """Read the GPUs that it was *granted* now, by uuid, for the processes of *status*."""
        if not status.pids:
            return
        try:
            readings = sensors.read(granted)
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


_STOP_TAKES_S = 60.0
"""At most, beside the grace time: the follower's tick, and an engine that has much to do."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What following a container to its end found."""

    status: ContainerStatus
    timed_out: bool
    runtime_s: float
    log_tail: str
    gpu_use: GpuUse | None
    """None for a CPU job: no GPU's memory ran out."""
    cancellation: Exit | None = None
    """Why it was stopped from outside, if it was."""
    stopped_early: bool = False
    """Whether it ended before the iterations or epochs that its log had promised."""
    disk_peak_bytes: int | None = None
    """Most that it had written at once."""
    memory_limit_bytes: int = 0
    """Host memory that it could have in the end; 0 where nobody knows."""
    no_more_memory: str = ""
    """Why it got no more when it needed it; empty where it did."""

    def own_exit(self) -> Exit:
        """How the container ended by itself, whoever may have stopped it."""
        return classify_exit(
            self.status,
            timed_out=self.timed_out,
            log_tail=self.log_tail,
            gpus=self.gpu_use is not None,
        )


def ran_out_of_time(
    status: ContainerStatus, max_runtime_s: float | None, grace_s: float, followed_s: float
) -> bool:
    """Whether it ended beyond its time limit, by itself or stopped by a process that has died.

    Of one that was killed only an end soon after the limit tells: what the engine notes as the
    end of a container that its node took along is the moment when both were back.

    Args:
        status: Of the container, which has ended.
        max_runtime_s: Its limit; None for none.
        grace_s: So long it may take to stop.
        followed_s: Its age by the clock that does not jump, at its end or later.
    """
    if max_runtime_s is None or status.started_at is None or status.ended_at is None:
        return False
    over_s = (status.ended_at - status.started_at).total_seconds() - max_runtime_s
    if status.oom_killed:
        return False
    if status.exit_code == 0:
        return over_s > 0 and followed_s > max_runtime_s
    return 0 <= over_s <= grace_s + _STOP_TAKES_S
