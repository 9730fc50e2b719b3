"""When a session has been idle for so long that it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.model.telemetry import TelemetryPoint
from headway.policy.silent_failures import UNUSED_FRAC
from headway.units import format_duration


@dataclass(frozen=True, slots=True)
class EndIdle:
    """The session is to be ended, for the reason that people are told."""

    why: str


def gpu_was_used(points: Mapping[str, Sequence[TelemetryPoint]], run_id: str) -> bool:
    """Whether the run may have used one of its GPUs in *points*, by the GPU's uuid.

    A GPU's use counts where the run has memory there, whoever else has; where the driver does not
    tell the use, that it has memory.
    """
    return any(
        each.run_bytes.get(run_id, 0) > 0
        and (each.busy_frac is None or each.busy_frac >= UNUSED_FRAC)
        for series in points.values()
        for each in series
    )


def judge_idle(alone_s: float, idle_after_s: float, *, gpu_used: bool) -> EndIdle | None:
    """End a session that nobody uses; None while it may go on.

    Args:
        alone_s: Since somebody was connected, or since its start.
        idle_after_s: How long that may last.
        gpu_used: Whether it used a GPU within that time.
    """
    if alone_s < idle_after_s or gpu_used:
        return None
    lasted = format_duration(idle_after_s)
    return EndIdle(
        f"ended: nobody was connected and no GPU was used for {lasted}; "
        "give session.idle for a longer time"
    )
