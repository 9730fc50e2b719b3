"""The telemetry ports. Real adapters: `gpu.NvmlGpus`, `host.NodeHost`.

The fakes are in `tests.ports.telemetry`; fakes and adapters pass the
contract in `tests.ports.telemetry_contract`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from headway.model.gpu_health import GpuHealth
from headway.model.link import GpuLinks
from headway.model.node import Gpu, GpuReading, HostReading, MemoryMeans


class GpuSensors(Protocol):
    """Reads the GPUs of this node, and limits what programs take of them."""

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this node has, lost ones too; empty where there is no NVIDIA driver at all.

        Raises:
            NvmlUnavailable: There is a driver, but it cannot be used.
        """
        ...

    def expect(self, gpus: Iterable[Gpu]) -> None:
        """Take *gpus* for this node's: one of them that is not there is lost."""
        ...

    def lost(self) -> Mapping[str, str]:
        """GPUs that the newest reading found lost, by uuid, with the cause."""
        ...

    def read(self, only: Collection[str] | None = None) -> tuple[GpuReading, ...]:
        """Every GPU now that is not lost: one that fell off the bus takes no other with it.

        With *only*, those of them with one of these uuids.

        Raises:
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        ...

    def health(self) -> tuple[GpuHealth, ...]:
        """How every GPU is that is not lost, without its Xids: those are for `xids`.

        Raises:
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        ...

    def xids(self) -> Sequence[tuple[str, int]]:
        """Xids that `health` has met, each once, with the uuid; also if it raised afterwards."""
        ...

    def retry_lost(self) -> None:
        """Ask for lost GPUs at the next reading, without the usual pause."""
        ...

    def means(self, group: Path | None) -> Mapping[str, tuple[MemoryMeans, str]]:
        """By what each GPU that is not lost can keep runs to their memory, and why not better.

        Tried out on *group*, the directory of a control group without a process, which has no
        limit afterwards; None where programs have no such group before they start.

        Raises:
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        ...

    def limit(self, uuid: str, group: Path, most_bytes: int) -> None:
        """Have the driver give programs in *group* at most so much of a GPU, and read it back.

        Raises:
            LimitUntaken: It does not, or holds another limit than this one.
            GpuLost: The GPU fell off the bus.
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        ...

    def unlimit(self, group: Path) -> None:
        """Take back what *group* was limited to, of every GPU. Raises as `limit`."""
        ...

    def links(self) -> tuple[GpuLinks, ...]:
        """How every GPU is connected now; the link of an idle GPU is slower than it can be.

        Raises:
            GpuLost: A GPU fell off the bus; its uuid is named.
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        ...


class HostSensors(Protocol):
    """Reads the host of this node."""

    def cpus(self) -> float:
        """Logical CPUs this process may use (affinity and cgroup quota)."""
        ...

    def read(self) -> HostReading:
        """The host now."""
        ...
