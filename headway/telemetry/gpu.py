"""GPUs by NVML: the only import of pynvml.

Of a GPU that is divided by MIG, the slices are the GPUs: each has a uuid and
memory of its own, and a container is given a slice by that uuid.
"""

import ctypes
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from headway.clock import Clock, SystemClock
from headway.errors import GpuLost, NvmlUnavailable
from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.node import Gpu, GpuProcess, GpuReading
from headway.telemetry.deadline import DeadlineReader
from headway.units import KIB

T = TypeVar("T")
log = logging.getLogger(__name__)

KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
"""Exists where NVIDIA's kernel driver is loaded."""

_LOOK_AGAIN_S = 60.0
"""While a GPU is lost NVML is started anew so often: it may have been reset meanwhile."""
_ALL_LINKS = 0xFFFF_FFFF
"""NVML's scope for the sum over all NVLinks of a GPU."""
_NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0"}
"""nvmlNvlinkVersion_t; older bindings lack names for the later ones."""
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_NOT_OFFERED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_DATA,
)


@dataclass(frozen=True, slots=True)
class _Device:
    handle: Any
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class _Traffic:
    at_s: float
    rx_kib: int
    tx_kib: int


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
        self._devices: list[_Device] | None = None
        """None: NVML is not started, or must be started anew."""
        self._known: dict[str, Gpu] = {}
        """Every GPU ever seen or expected, by uuid: one that is gone is lost."""
        self._lost: dict[str, str] = {}
        """Those that are lost, by uuid, with NVML's words."""
        self._lost_at: dict[int, str] = {}
        """GPUs that NVML counts but cannot reach, by index: their uuid cannot be asked."""
        self._opened_s = 0.0
        self._traffic: dict[str, _Traffic] = {}
        self._pid = os.getpid()

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this node has, also those lost since; empty without an NVIDIA driver.

        Raises:
            NvmlUnavailable: There is a driver, but it cannot be used.
            TelemetryTimeout: NVML hangs.
        """
        return self._reader.call(self._gpus)

    def expect(self, gpus: Iterable[Gpu]) -> None:
        """Take *gpus* for this node's: one of them that NVML does not have is lost."""
        for gpu in gpus:
            self._known.setdefault(gpu.uuid, gpu)

    def lost(self) -> Mapping[str, str]:
        """GPUs that the newest reading found lost, by uuid, with the cause."""
        return dict(self._lost)

    def read(self) -> tuple[GpuReading, ...]:
        """Every GPU that is not lost. NVLink traffic is None in the first reading.

        Raises:
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        return self._reader.call(self._read)

    def links(self) -> tuple[GpuLinks, ...]:
        """How every GPU is connected now.

        Raises:
            GpuLost: A GPU fell off the bus.
            NvmlUnavailable: NVML cannot be used (any more).
            TelemetryTimeout: NVML hangs.
        """
        return self._reader.call(self._links)

    def _links(self) -> tuple[GpuLinks, ...]:
        return tuple(
            self._ask(device.gpu.uuid, partial(_links_of, device)) for device in self._open()
        )

    def _gpus(self) -> tuple[Gpu, ...]:
        self._open()
        return tuple(sorted(self._known.values(), key=lambda gpu: gpu.index))

    def _read(self) -> tuple[GpuReading, ...]:
        if self._lost and self._clock.monotonic_s() >= self._opened_s + _LOOK_AGAIN_S:
            self._close()
        lost: dict[str, str] = {}
        readings = []
        for device in self._open():
            try:
                readings.append(self._read_device(device))
            except GpuLost as error:
                lost[device.gpu.uuid] = error.cause
        if lost:
            self._devices = [d for d in self._devices or () if d.gpu.uuid not in lost]
        present = {reading.uuid for reading in readings}
        for gpu in self._known.values():
            if gpu.uuid not in present and gpu.uuid not in lost:
                before = self._lost.get(gpu.uuid, "NVML does not list it any more")
                lost[gpu.uuid] = self._lost_at.get(gpu.index, before)
        for uuid in lost.keys() - self._lost.keys():
            log.warning("%s", GpuLost(uuid, lost[uuid]))
        for uuid in self._lost.keys() - lost.keys():
            log.warning("GPU %s is back", uuid)
        self._lost = lost
        return tuple(readings)

    # --- starting NVML ---

    def _open(self) -> list[_Device]:
        if self._devices is None or self._pid != os.getpid():
            self._devices = None
            self._pid = os.getpid()
            if not self._start():
                return []
            devices, lost, divided = self._ask("", _enumerate)
            for index in lost.keys() - self._lost_at.keys():
                log.warning("GPU %d of this node cannot be used: %s", index, lost[index])
            self._known.update({device.gpu.uuid: device.gpu for device in devices})
            self._devices, self._lost_at = devices, lost
            self._forget({device.gpu.uuid for device in devices}, divided)
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
            raise NvmlUnavailable(_words(error)) from error
        return True

    # --- reading one GPU ---

    def _read_device(self, device: _Device) -> GpuReading:
        handle, gpu = device.handle, device.gpu

        def offered(read: Callable[..., T], *args: object) -> T | None:
            return self._ask(gpu.uuid, lambda: _offered(lambda: read(handle, *args)))

        total, used, kept = self._ask(gpu.uuid, lambda: _memory(handle, gpu.uuid))
        utilisation = offered(pynvml.nvmlDeviceGetUtilizationRates)
        power_mw = offered(pynvml.nvmlDeviceGetPowerUsage)
        rx = offered(pynvml.nvmlDeviceGetPcieThroughput, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        tx = offered(pynvml.nvmlDeviceGetPcieThroughput, pynvml.NVML_PCIE_UTIL_TX_BYTES)
        counters = offered(_nvlink_counters)
        nvlink_rx, nvlink_tx = self._nvlink_rates(gpu.uuid, counters)
        return GpuReading(
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            memory_bytes=total,
            used_bytes=used,
            driver_bytes=kept,
            utilisation_frac=None if utilisation is None else utilisation.gpu / 100,
            temperature_c=offered(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            pcie_rx_bytes_per_s=None if rx is None else float(rx * KIB),
            pcie_tx_bytes_per_s=None if tx is None else float(tx * KIB),
            nvlink_rx_bytes_per_s=nvlink_rx,
            nvlink_tx_bytes_per_s=nvlink_tx,
            processes=offered(_processes) or (),
        )

    def _nvlink_rates(
        self, uuid: str, counters: tuple[int, int] | None
    ) -> tuple[float, float] | tuple[None, None]:
        if counters is None:
            return None, None
        now = _Traffic(self._clock.monotonic_s(), *counters)
        before = self._traffic.get(uuid)
        self._traffic[uuid] = now
        if before is None or now.at_s <= before.at_s:
            return None, None
        rx_kib, tx_kib = now.rx_kib - before.rx_kib, now.tx_kib - before.tx_kib
        if rx_kib < 0 or tx_kib < 0:
            return None, None  # the counters were reset
        elapsed_s = now.at_s - before.at_s
        return rx_kib * KIB / elapsed_s, tx_kib * KIB / elapsed_s

    def _ask(self, uuid: str, read: Callable[[], T]) -> T:
        """*read*, with NVML's errors made ours.

        After an error of the driver NVML is closed, and started anew by the
        next reading. A GPU that is lost does not take the others' readings:
        it is asked again only after `_LOOK_AGAIN_S`.
        """
        try:
            return read()
        except NvmlUnavailable:
            self._close()
            raise
        except pynvml.NVMLError as error:
            if error.value in _LOST and uuid:
                raise GpuLost(uuid, _words(error)) from error
            self._close()
            raise NvmlUnavailable(f"{_words(error)}{uuid and f' on GPU {uuid}'}") from error

    def _close(self) -> None:
        self._devices = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.debug("nvmlShutdown: %s", _words(error))


def _enumerate() -> tuple[list[_Device], dict[int, str], set[str]]:
    """Every GPU that answers (of a divided one its slices), those lost, and uuids of the divided.

    A GPU that is lost when it is looked for is left out, so that the others
    can work: nothing is ever started on it.
    """
    devices: list[_Device] = []
    lost: dict[int, str] = {}
    divided: set[str] = set()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            parts = _slices(handle)
            devices += [_device(part, index) for part in parts]
            if parts != [handle]:
                divided.add(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            if error.value not in _LOST:
                raise
            lost[index] = _words(error)
    return devices, lost, divided


def _slices(handle: Any) -> list[Any]:
    mode = _offered(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [handle]
    slices = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            slices.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:
                raise
    return slices


def _device(handle: Any, index: int) -> _Device:
    uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    total, _, _ = _memory(handle, uuid)
    return _Device(handle, Gpu(uuid=uuid, index=index, name=name, memory_bytes=total))


def _memory(handle: Any, uuid: str) -> tuple[int, int, int]:
    """Total and used bytes, and those of the used ones that the driver keeps for itself."""
    memory = _offered(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2))
    if memory is None:
        memory = _offered(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    if memory is None:
        raise NvmlUnavailable(f"GPU {uuid} does not report its memory")
    return memory.total, memory.total - memory.free, getattr(memory, "reserved", 0)


def _links_of(device: _Device) -> GpuLinks:
    return GpuLinks(
        device.gpu.uuid,
        pcie=_pcie(
            device.handle,
            pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
            pynvml.nvmlDeviceGetCurrPcieLinkWidth,
        ),
        pcie_at_most=_pcie(
            device.handle,
            pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
            pynvml.nvmlDeviceGetMaxPcieLinkWidth,
        ),
        nvlink=_nvlink(device.handle),
    )


def _pcie(
    handle: Any, generation_of: Callable[[Any], int], lanes_of: Callable[[Any], int]
) -> Pcie | None:
    generation = _offered(lambda: generation_of(handle))
    lanes = _offered(lambda: lanes_of(handle))
    return Pcie(generation, lanes) if generation and lanes else None


def _nvlink(handle: Any) -> NvLink | None:
    """The links that are up, taken to be of one version."""
    up = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = pynvml.nvmlDeviceGetNvLinkState(handle, link)
        except pynvml.NVMLError as error:
            if error.value not in (*_NOT_OFFERED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
            break  # no NVLink at all, or the GPU has no more of them
        if state == pynvml.NVML_FEATURE_ENABLED:
            up.append(link)
    if not up:
        return None
    number = _offered(lambda: pynvml.nvmlDeviceGetNvLinkVersion(handle, up[0]))
    return NvLink(_NVLINK_VERSIONS.get(number or 0, "of an unknown version"), len(up))


def _nvlink_counters(handle: Any) -> tuple[int, int] | None:
    """KiB received and sent over all links since some reset; None without NVLink."""
    fields = (
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    )
    values = pynvml.nvmlDeviceGetFieldValues(handle, [(field, _ALL_LINKS) for field in fields])
    if any(value.nvmlReturn != pynvml.NVML_SUCCESS for value in values):
        return None
    return values[0].value.ullVal, values[1].value.ullVal


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError_FunctionNotFound:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return tuple(GpuProcess(pid=each.pid, memory_bytes=each.usedGpuMemory) for each in found)


def _offered(read: Callable[[], T]) -> T | None:
    """*read*, or None where this GPU or driver does not offer it."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if error.value in _NOT_OFFERED:
            return None
        raise


def _words(error: Any) -> str:
    return f"NVML error {error.value}: {error}"
