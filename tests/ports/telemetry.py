"""Sensors whose readings a test sets."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from headway.model.gpu_health import GpuHealth
from headway.model.link import GpuLinks
from headway.model.node import Gpu, GpuReading, HostReading, MemoryMeans
from headway.telemetry.errors import GpuLost, LimitUntaken, TelemetryError
from headway.units import GIB


class FakeGpus:
    """GPUs that show what they were told to (port `GpuSensors`).

    Attributes:
        error: Raised by every call until it is None again.
        takes_limits: Whether its driver has limits.
        limits: What they are, by uuid and control group.
    """

    def __init__(self, *readings: GpuReading) -> None:
        self._readings = {reading.uuid: reading for reading in readings}
        self._known = {
            each.uuid: Gpu(each.uuid, each.index, each.name, each.memory_bytes) for each in readings
        }
        self._links: dict[str, GpuLinks] = {}
        self._health: dict[str, GpuHealth] = {}
        self._xids: list[tuple[str, int]] = []
        self.error: TelemetryError | None = None
        self.takes_limits = False
        self.limits: dict[tuple[str, Path], int] = {}

    @classmethod
    def idle(cls, count: int, memory_bytes: int = 80 * GIB, name: str = "Fake GPU") -> "FakeGpus":
        """*count* GPUs with nothing on them, called ``GPU-0``, ``GPU-1`` and so on."""
        numbers = range(count)
        readings = [GpuReading(f"GPU-{n}", n, name, memory_bytes, 0, 0.0) for n in numbers]
        return cls(*readings)

    def show(self, uuid: str, **values: object) -> None:
        """Change fields of one GPU's reading."""
        self._readings[uuid] = replace(self._readings[uuid], **values)  # type: ignore[arg-type]

    def lose(self, uuid: str) -> None:
        """The GPU falls off the bus."""
        del self._readings[uuid]

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this node has, lost ones too. Raises `error`."""
        self._answer()
        return tuple(sorted(self._known.values(), key=lambda gpu: gpu.index))

    def expect(self, gpus: Iterable[Gpu]) -> None:
        """One of *gpus* that is not shown is lost."""
        for gpu in gpus:
            self._known.setdefault(gpu.uuid, gpu)

    def lost(self) -> Mapping[str, str]:
        """GPUs that are known and not shown."""
        gone = self._known.keys() - self._readings.keys()
        return dict.fromkeys(sorted(gone), "the test took it away")

    def read(self, only: Collection[str] | None = None) -> tuple[GpuReading, ...]:
        """Every GPU as it was told. Raises `error`."""
        self._answer()
        read = self._readings.values()
        return tuple(each for each in read if only is None or each.uuid in only)

    def sicken(self, uuid: str, *, xids: Iterable[int] = (), **values: object) -> None:
        """Change fields of one GPU's health; the driver reports *xids*, once."""
        self._xids += [(uuid, xid) for xid in xids]
        known = self._health.get(uuid, GpuHealth(uuid))
        self._health[uuid] = replace(known, **values)  # type: ignore[arg-type]

    def health(self) -> tuple[GpuHealth, ...]:
        """As the test set it, else nothing known of it. Raises `error`."""
        self._answer()
        return tuple(self._health.get(uuid, GpuHealth(uuid)) for uuid in self._readings)

    def xids(self) -> list[tuple[str, int]]:
        """Those that the test had reported; also after an `error`."""
        found, self._xids = self._xids, []
        return found

    def retry_lost(self) -> None:
        """Every reading asks anew here."""

    def means(self, group: Path | None) -> dict[str, tuple[MemoryMeans, str]]:
        """The driver's limits, where it takes some, else the watch. Raises `error`."""
        self._answer()
        best = MemoryMeans.WATCH, "the test has no better"
        if self.takes_limits and group is not None:
            best = MemoryMeans.DRIVER_LIMIT, ""
        return dict.fromkeys(self._readings, best)

    def limit(self, uuid: str, group: Path, most_bytes: int) -> None:
        """Note it. Raises `error`."""
        self._answer()
        if uuid not in self._readings:
            raise GpuLost(uuid, "the test took it away")
        if not self.takes_limits:
            raise LimitUntaken(uuid, str(most_bytes), "the test said so")
        self.limits[uuid, group] = most_bytes

    def unlimit(self, group: Path) -> None:
        """Forget it. Raises `error`."""
        self._answer()
        self.limits = {key: value for key, value in self.limits.items() if key[1] != group}

    def links(self) -> tuple[GpuLinks, ...]:
        """As the test set them, else nothing known of them. Raises `error`."""
        self._answer()
        return tuple(self._links.get(uuid, GpuLinks(uuid)) for uuid in self._readings)

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error

    def connect(self, links: GpuLinks) -> None:
        """Set how one GPU is connected."""
        self._links[links.uuid] = links


class FakeHost:
    """A host that shows what it was told to (port `HostSensors`).

    Attributes:
        reading: What `read` returns.
    """

    def __init__(
        self, cpus: float = 8.0, memory_bytes: int = 32 * GIB, used_bytes: int = 0
    ) -> None:
        self._cpus = cpus
        self.reading = HostReading(memory_bytes, used_bytes, 0.0, 100 * GIB)

    def show(self, **values: object) -> None:
        """Change fields of the reading."""
        self.reading = replace(self.reading, **values)  # type: ignore[arg-type]

    def cpus(self) -> float:
        """Logical CPUs."""
        return self._cpus

    def read(self) -> HostReading:
        """The reading as it was told."""
        return self.reading
