"""What every implementation of the telemetry ports keeps.

A test module derives from `GpuSensorsContract` and gives a `rig` fixture
with the sensors and the means to move what they see.
"""

import time
from pathlib import Path
from typing import Protocol

import pytest

from headway.model.node import Gpu, GpuProcess, MemoryMeans
from headway.telemetry.errors import GpuLost, LimitUntaken, NvmlUnavailable, TelemetryTimeout
from headway.telemetry.port import GpuSensors, HostSensors
from headway.units import GIB


class GpuRig(Protocol):
    """Sensors of two GPUs, ``GPU-0`` and ``GPU-1``, of 80 GiB each, and what a test may do."""

    sensors: GpuSensors

    def use(self, uuid: str, used_bytes: int, processes: dict[int, int | None]) -> None:
        """Memory in use, and by which host pids."""

    def lose(self, uuid: str) -> None:
        """The GPU falls off the bus."""


class DriverRig(GpuRig, Protocol):
    """The same, whose driver may fail."""

    def mismatch(self) -> None:
        """Driver and library no longer match."""

    def hang(self) -> None:
        """The driver hangs."""

    def offer_limits(self) -> None:
        """The driver is r615 or newer."""

    def limits(self) -> dict[tuple[str, Path], int]:
        """What control groups may have, by uuid and group."""

    def heal(self) -> None:
        """Take back `mismatch` and `hang`."""


class GpuSensorsContract:
    """Of the port `GpuSensors`."""

    def test_gpus_are_named_and_sized(self, rig: GpuRig) -> None:
        """Capacity comes with uuid, index and physical memory."""
        found = [(gpu.uuid, gpu.index, gpu.memory_bytes) for gpu in rig.sensors.gpus()]
        assert found == [("GPU-0", 0, 80 * GIB), ("GPU-1", 1, 80 * GIB)]

    def test_use_is_read_anew(self, rig: GpuRig) -> None:
        """A reading is of now, per GPU; of an idle one nobody but the driver holds anything."""
        assert [gpu.program_bytes for gpu in rig.sensors.read()] == [0, 0]
        rig.use("GPU-1", 30 * GIB, {})
        first, second = rig.sensors.read()
        assert (first.program_bytes, first.processes) == (0, ())
        assert second.program_bytes == 30 * GIB
        assert second.used_bytes == 30 * GIB + second.driver_bytes
        (alone,) = rig.sensors.read({"GPU-1"})
        assert (alone.uuid, alone.program_bytes) == ("GPU-1", 30 * GIB)
        assert rig.sensors.lost() == {}

    def test_a_lost_gpu_is_named_and_the_others_are_read(self, rig: GpuRig) -> None:
        """Its cause is kept, its capacity is still known, and its neighbour goes on."""
        rig.sensors.gpus()
        assert rig.sensors.lost() == {}
        rig.lose("GPU-1")
        rig.use("GPU-0", 3 * GIB, {})
        for _ in range(2):
            (left,) = rig.sensors.read()
            assert (left.uuid, left.program_bytes) == ("GPU-0", 3 * GIB)
            assert list(rig.sensors.lost()) == ["GPU-1"]
            assert rig.sensors.lost()["GPU-1"]
        assert rig.sensors.read({"GPU-1"}) == ()
        assert [gpu.uuid for gpu in rig.sensors.read({"GPU-0"})] == ["GPU-0"]
        assert list(rig.sensors.lost()) == ["GPU-1"]
        assert [gpu.uuid for gpu in rig.sensors.gpus()] == ["GPU-0", "GPU-1"]

    def test_all_gpus_may_be_lost(self, rig: GpuRig) -> None:
        """Then nothing is read, and each has its cause."""
        rig.sensors.read()
        rig.lose("GPU-0")
        rig.lose("GPU-1")
        assert rig.sensors.read() == ()
        assert set(rig.sensors.lost()) == {"GPU-0", "GPU-1"}

    def test_a_gpu_of_an_earlier_process_is_expected(self, rig: GpuRig) -> None:
        """Whoever starts anew knows from the ledger what the node had."""
        before = Gpu("GPU-2", 2, "Gone 80GB", 80 * GIB)
        rig.sensors.expect([*rig.sensors.gpus(), before])
        assert [gpu.uuid for gpu in rig.sensors.read()] == ["GPU-0", "GPU-1"]
        assert list(rig.sensors.lost()) == ["GPU-2"]
        assert rig.sensors.gpus()[2] == before

    def test_where_the_driver_has_no_limits_runs_are_watched_and_why_is_told(
        self, rig: GpuRig, tmp_path: Path
    ) -> None:
        """As with every driver before r615: asked for, not taken for granted."""
        for group in (None, tmp_path):
            found = rig.sensors.means(group)
            assert [by for by, _ in found.values()] == [MemoryMeans.WATCH] * 2
            assert all(why for _, why in found.values())
        with pytest.raises(LimitUntaken):
            rig.sensors.limit("GPU-0", tmp_path, GIB)
        rig.sensors.unlimit(tmp_path)
        rig.lose("GPU-0")
        with pytest.raises((GpuLost, LimitUntaken)):
            rig.sensors.limit("GPU-0", tmp_path, GIB)

    def test_links_are_told_for_each_gpu(self, rig: GpuRig) -> None:
        """Also where nothing is known of them."""
        assert [each.uuid for each in rig.sensors.links()] == ["GPU-0", "GPU-1"]


class DriverContract(GpuSensorsContract):
    """Of the same port, what NVIDIA's imitation cannot show (tests/nvml/README.md)."""

    def test_processes_are_named(self, rig: DriverRig) -> None:
        """With what each holds, where the driver says so."""
        rig.use("GPU-1", 30 * GIB, {4711: 29 * GIB, 4712: None})
        first, second = rig.sensors.read()
        assert first.processes == ()
        assert second.processes == (GpuProcess(4711, 29 * GIB), GpuProcess(4712, None))

    def test_limits_are_tried_out_set_and_taken_back(self, rig: DriverRig, tmp_path: Path) -> None:
        """Of each GPU by itself; taking back what there is none of is fine."""
        rig.offer_limits()
        assert set(rig.sensors.means(None).values()) != {(MemoryMeans.DRIVER_LIMIT, "")}
        assert set(rig.sensors.means(tmp_path).values()) == {(MemoryMeans.DRIVER_LIMIT, "")}
        assert rig.limits() == {}
        other = tmp_path / "other"
        other.mkdir()
        rig.sensors.limit("GPU-0", tmp_path, 3 * GIB)
        rig.sensors.limit("GPU-1", tmp_path, 5 * GIB)
        rig.sensors.limit("GPU-1", other, 7 * GIB)
        rig.sensors.limit("GPU-1", tmp_path, 6 * GIB)
        kept = {("GPU-0", tmp_path): 3 * GIB, ("GPU-1", tmp_path): 6 * GIB}
        assert rig.limits() == kept | {("GPU-1", other): 7 * GIB}
        rig.sensors.unlimit(tmp_path)
        rig.sensors.unlimit(tmp_path)
        assert rig.limits() == {("GPU-1", other): 7 * GIB}
        rig.lose("GPU-0")
        assert list(rig.sensors.means(tmp_path)) == ["GPU-1"]

    def test_a_driver_that_cannot_be_used_is_never_an_empty_node(self, rig: DriverRig) -> None:
        """Every call fails, and works again after the repair."""
        rig.mismatch()
        for ask in (rig.sensors.read, rig.sensors.links, rig.sensors.gpus):
            with pytest.raises(NvmlUnavailable):
                ask()
        rig.heal()
        assert len(rig.sensors.gpus()) == len(rig.sensors.read()) == 2

    def test_a_driver_that_hangs_blocks_nobody(self, rig: DriverRig) -> None:
        """A reading that does not come is an error, and reading goes on afterwards."""
        rig.sensors.read()
        rig.hang()
        for _ in range(3):
            with pytest.raises(TelemetryTimeout):
                rig.sensors.read()
        rig.heal()
        assert len(settled(rig.sensors)) == 2


def settled(sensors: GpuSensors) -> tuple[object, ...]:
    """The first reading after a hang: the call left behind has to return first."""
    for _ in range(100):
        try:
            return sensors.read()
        except TelemetryTimeout:
            time.sleep(0.01)
    return sensors.read()


class HostSensorsContract:
    """Of the port `HostSensors`."""

    def test_a_reading_is_possible(self, host: HostSensors) -> None:
        """Every figure lies in its range."""
        for reading in (host.read(), host.read()):
            assert 0 <= reading.used_bytes <= reading.memory_bytes
            assert reading.memory_bytes > 0
            assert 0 <= reading.cpu_frac <= 1
            assert reading.disk_free_bytes >= 0

    def test_there_is_a_cpu(self, host: HostSensors) -> None:
        """At least some share of one."""
        assert host.cpus() > 0
