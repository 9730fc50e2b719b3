"""What following a container to its end found."""

from dataclasses import dataclass

from headway.model.run import Exit
from headway.run.gpu_use import GpuUse
from headway.runtime.outcome import classify_exit
from headway.runtime.port import ContainerStatus

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
