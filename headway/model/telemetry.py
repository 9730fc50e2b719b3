"""A telemetry point: what a node's host or one of its GPUs showed over a period."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headway.model.profile import GpuRates


@dataclass(frozen=True, slots=True)
class TelemetryPoint(GpuRates):
    """One host or GPU over `period_s`. None: not known, never 'zero'."""

    at: datetime
    """End of the period."""
    gpu: str = ""
    """The GPU's uuid; empty for the host."""
    period_s: int = 1
    """A second for what was read, a minute for what was thinned."""
    used_bytes: int | None = None
    """Host or GPU memory in use; the highest of the period."""
    busy_frac: float | None = None
    """Share of the CPUs or of the GPU's time in use."""
    disk_free_bytes: int | None = None
    """Of the host; the least of the period."""
    run_bytes: Mapping[str, int] = field(default_factory=dict)
    """GPU memory by the run whose processes hold it; the highest of the period."""
