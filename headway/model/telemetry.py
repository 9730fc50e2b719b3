"""A telemetry point: what a node's host or one of its GPUs showed over a period."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TelemetryPoint:
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
    temperature_c: float | None = None
    power_w: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    sm_frac: float | None = None
    tensor_frac: float | None = None
    bandwidth_frac: float | None = None
    clock_frac: float | None = None
    power_limited_frac: float | None = None
    """Share of the time in which its clocks were held down for power."""
    heat_limited_frac: float | None = None
    """The same for heat."""
    run_bytes: Mapping[str, int] = field(default_factory=dict)
    """GPU memory by the run whose processes hold it; the highest of the period."""
