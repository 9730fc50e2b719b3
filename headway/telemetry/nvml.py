"""One GPU as NVML shows it.

Beside this file gpu.py, activity.py, limits.py and nvml_errors.py know pynvml.

Of a GPU that is divided by MIG, the slices are the GPUs: each has a uuid and
memory of its own, and a container is given a slice by that uuid.
"""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pynvml

from headway.model.gpu_health import GpuHealth
from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.node import WITHOUT_NVLINK, Gpu, GpuProcess, GpuReading, MemoryMeans
from headway.telemetry import limits
from headway.telemetry.activity import Activity, Gpm, limits_of
from headway.telemetry.errors import LimitUntaken, NvmlUnavailable
from headway.telemetry.nvml_errors import LOST, NOT_OFFERED, UNANSWERED, offered, told, words
from headway.units import KIB, MIB, format_size

T = TypeVar("T")
_ALL_LINKS = 0xFFFF_FFFF
"""NVML's scope for the sum over all NVLinks of a GPU."""
_NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0"}
"""nvmlNvlinkVersion_t; older bindings lack names for the later ones."""
_MOST_EVENTS = 100
"""Read of one GPU at once."""
_CPU_WORDS, _WORD_BITS = 64, 64
"""Room for 4,096 CPUs, in NVML's words."""


class _Traffic(NamedTuple):
    """What went over all NVLinks of a GPU since some reset."""

    at_s: float
    rx_kib: int
    tx_kib: int


@dataclass(slots=True)
class Device:
    """One GPU, or one slice of a divided GPU. Its methods raise NVML's own errors."""

    handle: Any
    gpu: Gpu
    board: Any
    """The GPU that it is or is a slice of: events are the whole GPU's."""
    boards: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By the address of its handle the uuids of each GPU; of a divided one those of its slices."""
    has_events: bool = True
    """False for all but one slice of a GPU, and where it does not offer them."""
    _events: Any = None
    _traffic: _Traffic | None = None
    _gpm: Gpm = field(init=False)

    def __post_init__(self) -> None:
        self._gpm = Gpm(self.handle)

    def _offered(self, read: Callable[..., T], *args: object) -> T | None:
        return offered(lambda: read(self.handle, *args))

    def _told(self, read: Callable[..., T], *args: object) -> T | None:
        return told(lambda: read(self.handle, *args))

    def read(self, now_s: float) -> GpuReading:
        """What it does at *now_s* of the monotonic clock; NVLink's rates since the reading before.

        Raises:
            NvmlUnavailable: It does not report its memory.
        """
        gpu = self.gpu
        total, used, kept = _memory(self.handle, gpu.uuid)
        utilisation = self._offered(pynvml.nvmlDeviceGetUtilizationRates)
        power_mw = self._offered(pynvml.nvmlDeviceGetPowerUsage)
        pcie = pynvml.nvmlDeviceGetPcieThroughput
        rx = self._offered(pcie, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        tx = self._offered(pcie, pynvml.NVML_PCIE_UTIL_TX_BYTES)
        nvlink_rx, nvlink_tx = self._nvlink_rates(now_s)
        # What only a profile tells of takes no reading with it where it fails.
        activity = told(lambda: self._gpm.read(now_s)) or Activity()
        clock = self._told(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        highest = self._told(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
        reasons = self._told(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        by_power, by_heat = (None, None) if reasons is None else limits_of(reasons)
        return GpuReading(
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            memory_bytes=total,
            used_bytes=used,
            driver_bytes=kept,
            utilisation_frac=None if utilisation is None else utilisation.gpu / 100,
            temperature_c=self._offered(
                pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else power_mw / 1000,
            pcie_rx_bytes_per_s=None if rx is None else float(rx * KIB),
            pcie_tx_bytes_per_s=None if tx is None else float(tx * KIB),
            nvlink_rx_bytes_per_s=nvlink_rx,
            nvlink_tx_bytes_per_s=nvlink_tx,
            **activity._asdict(),
            clock_frac=clock / highest if clock is not None and highest else None,
            power_limited_frac=by_power,
            heat_limited_frac=by_heat,
            processes=self._offered(_processes) or (),
        )

    def health(self, note_xid: Callable[[str, int], None]) -> GpuHealth:
        """How it is; what cannot be read is not told. *note_xid* gets each new Xid, in any case."""
        try:
            return self._figures()
        finally:
            told(lambda: self._read_xids(note_xid))

    def _figures(self) -> GpuHealth:
        remapped = self._told(pynvml.nvmlDeviceGetRemappedRows)
        utilisation = self._told(pynvml.nvmlDeviceGetUtilizationRates)
        return GpuHealth(
            self.gpu.uuid,
            ecc_uncorrectable=self._told(
                pynvml.nvmlDeviceGetTotalEccErrors,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            remap_failed=None if remapped is None else bool(remapped[3]),
            busy=None if utilisation is None else utilisation.gpu > 0,
            lanes=self._told(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
            lanes_at_most=self._told(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
            temperature_c=self._told(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            slowdown_c=self._told(
                pynvml.nvmlDeviceGetTemperatureThreshold,
                pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
            ),
        )

    def _read_xids(self, note: Callable[[str, int], None]) -> None:
        """By an event set of its own: one of all GPUs tells nothing once one of them is lost."""
        if self._events is None and self.has_events:
            self._register()
        if self._events is None:
            return
        with suppress(pynvml.NVMLError_Timeout):  # there are no more
            for _ in range(_MOST_EVENTS):
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                for uuid in self._named(event.device):
                    note(uuid, event.eventData)

    def _named(self, handle: Any) -> tuple[str, ...]:
        """The GPUs of an event, which are not always those that its set is for.

        None where it is of a GPU that was lost before NVML was started: that one is told as lost.
        """
        return self.boards.get(_address(handle), ()) if _address(handle) else (self.gpu.uuid,)

    def _register(self) -> None:
        """Have events from now on; a GPU that does not offer them is not asked again."""
        try:
            self._events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(
                self.board, pynvml.nvmlEventTypeXidCriticalError, self._events
            )
        except pynvml.NVMLError as error:
            self.has_events = error.value not in NOT_OFFERED
            self._free_events()
            raise

    def close(self, note_xid: Callable[[str, int], None]) -> None:
        """Give back what NVML keeps for it; *note_xid* gets the Xids that came until now."""
        if self._events is not None:
            with suppress(pynvml.NVMLError):
                self._read_xids(note_xid)
        self._free_events()
        with suppress(pynvml.NVMLError):
            self._gpm.close()

    def _free_events(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def means(self, group: Path | None) -> tuple[MemoryMeans, str]:
        """See `GpuSensors.means`."""
        why = "programs start in no control group of version 2 that is headway's"
        if group is not None:
            try:
                self.limit(group, self.gpu.memory_bytes // 3 // MIB * MIB)
                self.limit(group, None)
            except LimitUntaken as error:
                why = f"no limits by the driver: {error.cause}"
            else:
                return MemoryMeans.DRIVER_LIMIT, ""
        if self._offered(_processes) is not None:
            return MemoryMeans.WATCH, why
        why += "; the driver does not tell which processes are on it"
        is_slice = _address(self.handle) != _address(self.board)
        return (MemoryMeans.MIG if is_slice else MemoryMeans.WHOLE), why

    def limit(self, group: Path, most_bytes: int | None) -> None:
        """Have it give programs in *group* at most so much memory, None for any; read back.

        Raises:
            LimitUntaken: It does not.
        """
        asked = "nothing" if most_bytes is None else format_size(most_bytes)
        try:
            limits.set_limit(self.handle, group, most_bytes)
            found = limits.limit_of(self.handle, group)
        except pynvml.NVMLError as error:
            if error.value in (*LOST, *UNANSWERED):
                raise
            raise LimitUntaken(self.gpu.uuid, asked, words(error)) from error
        if not limits.is_held(most_bytes, found):
            held = "nothing" if found is None else f"{found:,} B"
            raise LimitUntaken(self.gpu.uuid, asked, f"it holds {held} afterwards")

    def unlimit(self, group: Path) -> None:
        """Take back a limit of *group*, where it has one. Raises as `limit`."""
        if self._told(limits.limit_of, group) is not None:
            self.limit(group, None)

    def _nvlink_rates(self, now_s: float) -> tuple[float, float] | tuple[None, None]:
        counters = self._offered(_nvlink_counters)
        before, now = self._traffic, counters and _Traffic(now_s, *counters)
        self._traffic = now or before
        if now is None or before is None or now.at_s <= before.at_s:
            return None, None
        rx_kib, tx_kib = now.rx_kib - before.rx_kib, now.tx_kib - before.tx_kib
        if rx_kib < 0 or tx_kib < 0:
            return None, None  # the counters were reset
        elapsed_s = now.at_s - before.at_s
        return rx_kib * KIB / elapsed_s, tx_kib * KIB / elapsed_s

    def links(self) -> GpuLinks:
        """How it is connected now."""
        return GpuLinks(
            self.gpu.uuid,
            pcie=self._pcie(
                pynvml.nvmlDeviceGetCurrPcieLinkGeneration, pynvml.nvmlDeviceGetCurrPcieLinkWidth
            ),
            pcie_at_most=self._pcie(
                pynvml.nvmlDeviceGetMaxPcieLinkGeneration, pynvml.nvmlDeviceGetMaxPcieLinkWidth
            ),
            nvlink=self._nvlink(),
            cpus=self._offered(_cpus),
        )

    def _pcie(self, generation_of: Callable[[Any], int], lanes_of: Callable[[Any], int]) -> Any:
        generation, lanes = self._offered(generation_of), self._offered(lanes_of)
        return Pcie(generation, lanes) if generation and lanes else None

    def _nvlink(self) -> NvLink | None:
        """The links that are up, taken to be of one version."""
        up = []
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                state = pynvml.nvmlDeviceGetNvLinkState(self.handle, link)
            except pynvml.NVMLError as error:
                if error.value not in (*NOT_OFFERED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                    raise
                break  # no NVLink at all, or the GPU has no more of them
            if state == pynvml.NVML_FEATURE_ENABLED:
                up.append(link)
        if not up:
            return None
        number = self._offered(pynvml.nvmlDeviceGetNvLinkVersion, up[0])
        return NvLink(_NVLINK_VERSIONS.get(number or 0, "of an unknown version"), len(up))


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs of a node as NVML counts them."""

    devices: list[Device]
    """Those that answer; of a divided one its slices."""
    lost: dict[int, str]
    """Those that cannot be reached, by index, with NVML's words: their uuid cannot be asked."""
    divided: set[str]
    """Uuids of those that are divided."""


def find() -> Found:
    """Every GPU of this node. One that is lost is left out: nothing is ever started on it."""
    found, boards = Found([], {}, set()), dict[int, tuple[str, ...]]()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            parts = _slices(handle)
            devices = [_device(part, index, handle, boards) for part in parts]
            for each in devices[1:]:
                each.has_events = False
            boards[_address(handle)] = tuple(each.gpu.uuid for each in devices)
            found.devices.extend(devices)
            if parts != [handle]:
                found.divided.add(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            if error.value not in LOST:
                raise
            found.lost[index] = words(error)
    for one in found.devices:
        far = {
            other.gpu.uuid: _distance(one.board, other.board)
            for other in found.devices
            if other is not one
        }
        known = {uuid: distance for uuid, distance in far.items() if distance is not None}
        one.gpu = replace(one.gpu, distances=known)
    return found


def _distance(one: Any, other: Any) -> int | None:
    """See `Gpu.distances`."""
    if _address(one) == _address(other):
        return 0
    try:
        level: int = pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    except pynvml.NVMLError:  # one that is lost meanwhile is told by its reading
        return None
    try:
        nvlink = pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except pynvml.NVMLError:
        return level + WITHOUT_NVLINK
    return level if nvlink == pynvml.NVML_P2P_STATUS_OK else level + WITHOUT_NVLINK


def _slices(handle: Any) -> list[Any]:
    mode = offered(lambda: pynvml.nvmlDeviceGetMigMode(handle))
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


def _device(handle: Any, index: int, board: Any, boards: dict[int, tuple[str, ...]]) -> Device:
    uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    total, _, _ = _memory(handle, uuid)
    return Device(handle, Gpu(uuid=uuid, index=index, name=name, memory_bytes=total), board, boards)


def _address(handle: Any) -> int:
    """What two handles of one GPU have in common."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _memory(handle: Any, uuid: str) -> tuple[int, int, int]:
    """Total and used bytes, and those of the used ones that the driver keeps for itself."""
    memory = offered(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2))
    if memory is None:
        memory = offered(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    if memory is None:
        raise NvmlUnavailable(f"GPU {uuid} does not report its memory")
    return memory.total, memory.total - memory.free, getattr(memory, "reserved", 0)


def _cpus(handle: Any) -> frozenset[int] | None:
    """CPUs that are nearest; None where the driver names none, as on a machine without NUMA."""
    try:
        found = list(pynvml.nvmlDeviceGetCpuAffinity(handle, _CPU_WORDS))
    except pynvml.NVMLError_InvalidArgument:  # a slice, of which not every driver tells it
        return None
    every = range(_CPU_WORDS * _WORD_BITS)
    return frozenset(n for n in every if found[n // _WORD_BITS] >> n % _WORD_BITS & 1) or None


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
