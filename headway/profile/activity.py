"""What the parts of a run's GPUs did, from telemetry, and what that means."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from headway.model.profile import Activity, Profile
from headway.model.telemetry import TelemetryPoint

_AT_WORK = 0.5
"""Below it a GPU waits more than it works."""
_BOUND = 0.6
"""Of a unit's peak: above it that unit is the limit (Nsight Compute, "GPU Speed Of Light")."""
_FILLED = 0.5
"""Below it kernels use a GPU ill (DCGM's user guide, "SM Activity")."""
_TENSOR = 0.1
"""Below it tensor cores have next to no part in the work."""


_NO_ACTIVITY = (
    "what its GPUs' multiprocessors, tensor cores and memory did is not told: GPUs of Hopper's "
    "generation and newer do, where they are not divided"
)


def with_activity(profile: Profile, series: Mapping[str, Sequence[TelemetryPoint]]) -> Profile:
    """*profile* with what the parts of the run's GPUs did, or a note that this is not told.

    Args:
        profile: By whoever counted.
        series: GPU's uuid → its points over the window.
    """
    seen = Activity(**{each.name: _mean_of(series, each.name) for each in fields(Activity)})
    silent = (
        any(series.values()) and seen.sm_frac is seen.tensor_frac is seen.bandwidth_frac is None
    )
    return replace(
        profile,
        busy_frac=_mean_of(series, "busy_frac"),
        activity=seen,
        notes=(*profile.notes, *([_NO_ACTIVITY] if silent else ())),
    )


def _mean_of(series: Mapping[str, Sequence[TelemetryPoint]], name: str) -> float | None:
    """The mean of one of a point's values; None where no point has it."""
    every = [(getattr(p, name), p.period_s) for points in series.values() for p in points]
    told = [(value, period_s) for value, period_s in every if value is not None]
    total_s = sum(period_s for _, period_s in told)
    return sum(value * period_s for value, period_s in told) / total_s if total_s else None


def activity_text(profile: Profile) -> str:
    """Such as ``its GPUs were 78 % utilised, SMs 70 %, tensor cores 4 %: …``; empty if not told."""
    seen = profile.activity
    figures = (
        ("its GPUs were ", profile.busy_frac, " utilised"),
        ("SMs ", seen.sm_frac, ""),
        ("tensor cores ", seen.tensor_frac, ""),
        ("memory ", seen.bandwidth_frac, ""),
    )
    if all(value is None for _, value, _ in figures[1:]):
        return ""
    told = ", ".join(
        f"{before}{value * 100:.0f} %{behind}"
        for before, value, behind in figures
        if value is not None
    )
    return ": ".join(filter(None, (told, _meaning(profile.busy_frac, seen))))


def _meaning(busy: float | None, seen: Activity) -> str:
    """What limits the run; the parts are judged by the time in which a kernel ran."""
    if busy is None or None in (seen.sm_frac, seen.tensor_frac, seen.bandwidth_frac):
        return ""
    if busy < _AT_WORK:
        return "waits more than half of the time, for its input or the host"
    sm, tensor, memory = (
        (value or 0.0) / busy for value in (seen.sm_frac, seen.tensor_frac, seen.bandwidth_frac)
    )
    if memory >= _BOUND:
        return "waits for the GPU's memory"
    if sm < _FILLED:
        return "its kernels fill less than half of the GPU: try larger batches, or fused kernels"
    if tensor < _TENSOR:
        return "waits for memory or input within its kernels, or computes without tensor cores"
    return "computes"


def clocks_text(seen: Activity) -> str:
    """How high its clocks were, and what held them down; empty if not told."""
    limits = (("power", seen.power_limited_frac), ("heat", seen.heat_limited_frac))
    held = [f"for {why} {part * 100:.0f} % of the time" for why, part in limits if part]
    at = "" if seen.clock_frac is None else f"at {seen.clock_frac * 100:.0f} % of the highest"
    down = f"held down {' and '.join(held)}" if held else ""
    told = ", ".join(filter(None, (at, down)))
    return f"clocks {told}" if told else ""
