"""What a profile of a run says: its kernels, and its copies against what the links carry."""

import enum
from dataclasses import dataclass


class Direction(enum.StrEnum):
    """Where bytes went."""

    HOST_TO_DEVICE = "HtoD"
    DEVICE_TO_HOST = "DtoH"
    DEVICE_TO_DEVICE = "DtoD"
    """Within the memory of one GPU."""
    PEER_TO_PEER = "PtoP"
    """From one GPU to another."""


class ProfileSource(enum.StrEnum):
    """Who counted. The consequence: nsys counts copies, NVML all traffic of a GPU."""

    NSYS = "nsys"
    """Each copy of this run, with its bytes and its time: the rate is that of a copy."""
    NVML = "nvml"
    """Samples of what crosses a GPU's links, whoever uses them: the rate is over the window."""


@dataclass(frozen=True, slots=True)
class Copies:
    """All copies of one direction."""

    direction: Direction
    size_bytes: int
    busy_s: float
    """Time spent copying (nsys) or observed (NVML)."""
    link: str = ""
    """Such as ``PCIe 3 x16``; empty where not known."""
    limit_bytes_per_s: float | None = None
    gpu: str = ""
    """The GPU's uuid; empty for all of the run's GPUs together."""
    count: int | None = None
    peak_bytes_per_s: float | None = None
    pageable_bytes: int | None = None
    """Part of `size_bytes` that went through pageable host memory, which is slower."""

    @property
    def bytes_per_s(self) -> float:
        """Mean rate."""
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """All launches of one kernel."""

    name: str
    launches: int
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the parts of a run's GPUs did, whoever used them: means over GPUs and time."""

    sm_frac: float | None = None
    """Of its multiprocessors those that were busy, since the reading before, as the next two."""
    tensor_frac: float | None = None
    """Share of the time in which they worked on tensors."""
    bandwidth_frac: float | None = None
    """Of what its memory can move."""
    clock_frac: float | None = None
    """Clock of its multiprocessors, of the highest."""
    power_limited_frac: float | None = None
    """Share of the time in which its clocks were held down for power; of a reading 0 or 1."""
    heat_limited_frac: float | None = None
    """The same for heat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates(Activity):
    """What is measured of a GPU, at a moment or over a period."""

    temperature_c: float | None = None
    power_w: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of one run, or of a part of it."""

    source: ProfileSource
    window_s: float
    """How long was looked at."""
    copies: tuple[Copies, ...] = ()
    kernels: tuple[GpuKernel, ...] = ()
    """Those that took most time, longest first."""
    kernels_s: float | None = None
    """Time of all kernels, summed; more than the window where they ran side by side."""
    busy_frac: float | None = None
    """Share of the window in which a kernel ran, where NVML tells."""
    activity: Activity = Activity()
    notes: tuple[str, ...] = ()
    """What must be known to read it: why there is no nsys, a link below its best."""
    report: str = ""
    """Path of nsys's own report, to be opened with nsys-ui."""
