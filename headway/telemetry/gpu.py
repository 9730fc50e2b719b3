"""The GPUs of this node by NVML: started, read, and started anew after an error of the driver."""

import ctypes
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pynvml

from headway.clock import Clock, SystemClock
from headway.model.gpu_health import GpuHealth
from headway.model.link import GpuLinks
from headway.model.node import Gpu, GpuReading, MemoryMeans
from headway.telemetry.deadline import DeadlineReader
from headway.telemetry.errors import GpuLost, NvmlUnavailable
from headway.telemetry.nvml import Device, find
from headway.telemetry.nvml_errors import LOST, words

T = TypeVar("T")
log = logging.getLogger(__name__)

KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
"""Exists where NVIDIA's kernel driver is loaded."""

_TRY_AGAIN_S = 60.0
"""While a GPU is lost NVML is started anew so often: it may have been reset meanwhile."""


class NvmlGpus:
    """The GPUs of this node (port `GpuSensors`).

    pynvml keeps one library for the whole process: the first one loaded.

    Args:
        library: Another libnvidia-ml to load before NVML starts; None for the
            driver's own.
        clock: Measures the time between two readings of NVLink's counters.
        deadline_s: How long one reading of all GPUs may take. PCIe counters
            alone take NVML 40 ms a GPU.
    """

    def __init__(
        self,
        library: Path | None = None,
        *,
        clock: Clock | None = None,
        deadline_s: float = 5.0,
    ) -> None:
        self._library = library
        self._clock = clock or SystemClock()
        self._reader = DeadlineReader("NVML", deadline_s, self._clock)
        self._devices: list[Device] | None = None
        """None: NVML is not started, or must be started anew."""
        self._known: dict[str, Gpu] = {}
        """Every GPU ever seen or expected, by uuid: one that is gone is lost."""
        self._lost: dict[str, str] = {}
        """Those that are lost, by uuid, with NVML's words."""
        self._lost_at: dict[int, str] = {}
        """GPUs that NVML counts but cannot reach, by index: their uuid cannot be asked."""
        self._opened_s = 0.0
        self._xids: deque[tuple[str, int]] = deque()
        """Met, and not asked for yet: NVML tells each once."""

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this node has, also those lost since; empty without an NVIDIA driver.

        Raises:
            NvmlUnavailable: There is a driver, but it cannot be used.
            TelemetryTimeout: NVML hangs.
        """
        self._reader.call(self._open)
        return tuple(sorted(self._known.values(), key=lambda gpu: gpu.index))

    def expect(self, gpus: Iterable[Gpu]) -> None:
        """Take *gpus* for this node's: one of them that NVML does not have is lost."""
        for gpu in gpus:
            self._known.setdefault(gpu.uuid, gpu)

    def lost(self) -> Mapping[str, str]:
        """GPUs that the newest reading found lost, by uuid, with the cause."""
        return dict(self._lost)

    def read(self, only: Collection[str] | None = None) -> tuple[GpuReading, ...]:
        """See `GpuSensors.read`. NVLink traffic is None in the first reading."""
        return self._reader.call(lambda: self._read(only))

    def health(self) -> tuple[GpuHealth, ...]:
        """How every GPU is that is not lost, without its Xids: those are for `xids`.

        Raises:
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        return self._each(lambda device: device.health(self._note_xid))

    def xids(self) -> list[tuple[str, int]]:
        """Xids that `health` has met, each once, with the uuid; also if it raised afterwards."""
        return [self._xids.popleft() for _ in range(len(self._xids))]

    def retry_lost(self) -> None:
        """Ask for lost GPUs at the next reading."""
        self._opened_s = -math.inf

    def links(self) -> tuple[GpuLinks, ...]:
        """How every GPU is connected now.

        Raises:
            GpuLost: A GPU fell off the bus.
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        return self._reader.call(
            lambda: tuple(self._ask(device.links, device.gpu.uuid) for device in self._open())
        )

    def means(self, group: Path | None) -> dict[str, tuple[MemoryMeans, str]]:
        """See `GpuSensors.means`."""
        return dict(self._each(lambda device: (device.gpu.uuid, device.means(group))))

    def limit(self, uuid: str, group: Path, most_bytes: int) -> None:
        """See `GpuSensors.limit`."""

        def limit() -> None:
            for device in self._open():
                if device.gpu.uuid == uuid:
                    return self._ask(partial(device.limit, group, most_bytes), uuid)
            raise GpuLost(uuid, self._lost.get(uuid, "NVML does not list it"))

        self._reader.call(limit)

    def unlimit(self, group: Path) -> None:
        """See `GpuSensors.unlimit`."""
        self._each(lambda device: device.unlimit(group))

    def _each(self, ask: Callable[[Device], T]) -> tuple[T, ...]:
        """What *ask* answers of every GPU that is not lost."""
        return self._reader.call(lambda: self._answers(ask))

    def _answers(self, ask: Callable[[Device], T]) -> tuple[T, ...]:
        found = []
        for device in self._open():
            with suppress(GpuLost):  # the next reading says so
                found.append(self._ask(partial(ask, device), device.gpu.uuid))
        return tuple(found)

    def _note_xid(self, uuid: str, xid: int) -> None:
        self._xids.append((uuid, xid))

    def _read(self, only: Collection[str] | None) -> tuple[GpuReading, ...]:
        now_s = self._clock.monotonic_s()
        if self._lost and now_s >= self._opened_s + _TRY_AGAIN_S:
            self._close()
        lost: dict[str, str] = {}
        readings = []
        for device in self._open():
            if only is None or device.gpu.uuid in only:
                try:
                    readings.append(self._ask(partial(device.read, now_s), device.gpu.uuid))
                except GpuLost as error:
                    lost[device.gpu.uuid] = error.cause
        if lost:
            self._drop(lost.keys())
        present = {reading.uuid for reading in readings}
        self._note_lost(lost | self._gone(present | lost.keys(), only))
        return tuple(readings)

    def _gone(self, asked: Collection[str], only: Collection[str] | None) -> dict[str, str]:
        """Of those that were not *asked*, the lost ones; of others than *only* by what was."""
        gone = {}
        for gpu in self._known.values():
            before = self._lost.get(gpu.uuid)
            if gpu.uuid in asked or (only is not None and gpu.uuid not in only and before is None):
                continue
            before = before or "NVML does not list it any more"
            gone[gpu.uuid] = self._lost_at.get(gpu.index, before)
        return gone

    def _note_lost(self, lost: dict[str, str]) -> None:
        for uuid in lost.keys() - self._lost.keys():
            log.warning("%s", GpuLost(uuid, lost[uuid]))
        for uuid in self._lost.keys() - lost.keys():
            log.warning("GPU %s is back", uuid)
        self._lost = lost

    def _drop(self, uuids: Collection[str]) -> None:
        devices, self._devices = self._devices or [], []
        for device in devices:
            if device.gpu.uuid in uuids:
                device.close(self._note_xid)
            else:
                self._devices.append(device)

    def _open(self) -> list[Device]:
        if self._devices is None:
            if not self._start():
                return []
            found = self._ask(find)
            for index in found.lost.keys() - self._lost_at.keys():
                log.warning("GPU %d of this node cannot be used: %s", index, found.lost[index])
            self._known.update({device.gpu.uuid: device.gpu for device in found.devices})
            self._devices, self._lost_at = found.devices, found.lost
            self._forget({device.gpu.uuid for device in found.devices}, found.divided)
            self._opened_s = self._clock.monotonic_s()
        return self._devices

    def _forget(self, present: set[str], divided: set[str]) -> None:
        """Forget what an operator divided anew: that is not lost. A worker that starts has it."""
        for uuid, gpu in list(self._known.items()):
            slice_gone = uuid.startswith("MIG-") and gpu.index not in self._lost_at
            if uuid in divided or (slice_gone and uuid not in present):
                log.warning("GPU %d was divided anew: %s is no more", gpu.index, uuid)
                del self._known[uuid]

    def _start(self) -> bool:
        """Start NVML; False on a machine that has no NVIDIA driver."""
        if self._library is not None:
            try:
                # Found again by its SONAME when pynvml asks for libnvidia-ml.so.1.
                ctypes.CDLL(str(self._library))
            except OSError as error:
                raise NvmlUnavailable(f"{self._library} cannot be loaded: {error}") from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            absent = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
            if absent and not KERNEL_DRIVER.exists():
                return False
            raise NvmlUnavailable(words(error)) from error
        return True

    def _ask(self, read: Callable[[], T], uuid: str = "") -> T:
        """*read*, with NVML's errors made ours.

        After an error of the driver NVML is closed, and started anew by the
        next reading. A GPU that is lost does not take the others' readings:
        it is asked again only after `_TRY_AGAIN_S`.
        """
        try:
            return read()
        except NvmlUnavailable:
            self._close()
            raise
        except pynvml.NVMLError as error:
            if error.value in LOST and uuid:
                raise GpuLost(uuid, words(error)) from error
            self._close()
            raise NvmlUnavailable(f"{words(error)}{uuid and f' on GPU {uuid}'}") from error

    def _close(self) -> None:
        for device in self._devices or ():
            device.close(self._note_xid)
        self._devices = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.debug("nvmlShutdown: %s", words(error))
