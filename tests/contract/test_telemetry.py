"""Fakes and real sensors keep the same promises."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.model.gpu_health import Sickness
from headway.model.link import Pcie
from headway.model.node import GpuProcess, MemoryMeans
from headway.policy.closeness import closeness
from headway.policy.gpu_health import sicknesses
from headway.telemetry.errors import LimitUntaken, NvmlUnavailable, TelemetryTimeout
from headway.telemetry.gpu import NvmlGpus
from headway.telemetry.host import NodeHost
from headway.telemetry.port import GpuSensors, HostSensors
from headway.units import GIB, MIB
from tests.nvml.imitation import LOST, OFF_THE_BUS, ImitatedGpus, ecc_uncorrectable, elsewhere
from tests.nvml.stub import (
    DRIVER_MISMATCH,
    GPU_IS_LOST,
    STATE_VARIABLE,
    StubGpu,
    StubGpus,
    build_stub,
)
from tests.ports.telemetry import FakeGpus, FakeHost
from tests.ports.telemetry_contract import (
    DriverContract,
    DriverRig,
    GpuRig,
    GpuSensorsContract,
    HostSensorsContract,
)


class FakeRig:
    def __init__(self) -> None:
        self.sensors = FakeGpus.idle(2)

    def use(self, uuid: str, used_bytes: int, processes: dict[int, int | None]) -> None:
        held = tuple(GpuProcess(pid, size) for pid, size in processes.items())
        self.sensors.show(uuid, used_bytes=used_bytes, processes=held)

    def lose(self, uuid: str) -> None:
        self.sensors.lose(uuid)

    def mismatch(self) -> None:
        self.sensors.error = NvmlUnavailable("the test said so")

    def hang(self) -> None:
        self.sensors.error = TelemetryTimeout("NVML", 5.0)

    def offer_limits(self) -> None:
        self.sensors.takes_limits = True

    def limits(self) -> dict[tuple[str, Path], int]:
        return self.sensors.limits

    def heal(self) -> None:
        self.sensors.error = None


class StubRig:
    """The real adapter and the real pynvml over the stub library."""

    def __init__(self, library: Path, stub: StubGpus) -> None:
        self.stub = stub
        self.sensors = NvmlGpus(library, deadline_s=0.2)
        stub.add("GPU-0")
        stub.add("GPU-1")

    def use(self, uuid: str, used_bytes: int, processes: dict[int, int | None]) -> None:
        held = {pid: -1 if size is None else size for pid, size in processes.items()}
        self.stub.set(uuid, used=used_bytes, processes=held)

    def lose(self, uuid: str) -> None:
        self.stub.set(uuid, error=GPU_IS_LOST)

    def mismatch(self) -> None:
        self.stub.fail(init_error=DRIVER_MISMATCH, error=DRIVER_MISMATCH)

    def hang(self) -> None:
        self.stub.fail(hang=1)

    def offer_limits(self) -> None:
        self.stub.fail(limits=1)

    def limits(self) -> dict[tuple[str, Path], int]:
        return {(uuid, Path(group)): held for (uuid, group), held in self.stub.limits.items()}

    def heal(self) -> None:
        self.stub.heal()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("nvml"))


class TestFakeGpus(DriverContract):
    @pytest.fixture
    def rig(self) -> DriverRig:
        return FakeRig()


class TestNvmlGpus(DriverContract):
    @pytest.fixture
    def rig(
        self, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[DriverRig]:
        stub = StubGpus(tmp_path / "gpus.state")
        monkeypatch.setenv(STATE_VARIABLE, str(stub.path))
        yield StubRig(library, stub)
        stub.heal()
        time.sleep(0.02)  # a call left behind by a hang goes home

    def test_an_xid_is_told_once_also_of_a_gpu_that_is_gone_with_it(self, rig: StubRig) -> None:
        rig.stub.report("GPU-0", 31)
        rig.sensors.health()  # events count from here on
        rig.stub.report("GPU-0", 13)
        rig.stub.report("GPU-1", 79)
        rig.lose("GPU-1")
        rig.sensors.read()
        rig.sensors.health()
        assert sorted(rig.sensors.xids()) == [("GPU-0", 13), ("GPU-1", 79)]
        rig.sensors.health()
        assert rig.sensors.xids() == []

    def test_an_xid_of_a_divided_gpu_is_each_slices(self, rig: StubRig) -> None:
        slices = (StubGpu("MIG-a"), StubGpu("MIG-b"))
        rig.stub.set("GPU-0", mig=1, slices=slices)
        rig.sensors.health()
        rig.stub.report("GPU-0", 48)
        rig.sensors.health()
        assert rig.sensors.xids() == [("MIG-a", 48), ("MIG-b", 48)]

    @pytest.mark.parametrize(
        ("limits", "said"),
        [
            (2, "it holds nothing afterwards"),  # setting answers well, and does nothing
            (3, "NVML error 3: Not Supported"),
            (4, "NVML error 4: Insufficient Permissions"),
        ],
    )
    def test_a_limit_that_does_not_take_is_none(
        self, rig: StubRig, tmp_path: Path, limits: int, said: str
    ) -> None:
        rig.stub.fail(limits=limits)
        by, why = rig.sensors.means(tmp_path)["GPU-0"]
        assert (by, why.endswith(said)) == (MemoryMeans.WATCH, True), why
        with pytest.raises(LimitUntaken, match=re.escape(said)):
            rig.sensors.limit("GPU-0", tmp_path, GIB)

    def test_a_limit_may_be_rounded_up_to_a_granule_and_by_no_more(
        self, rig: StubRig, tmp_path: Path
    ) -> None:
        rig.stub.fail(limits=1, limit_granule=2 * MIB)
        rig.sensors.limit("GPU-0", tmp_path, GIB + MIB)
        assert rig.stub.limits == {("GPU-0", str(tmp_path)): GIB + 2 * MIB}
        rig.stub.fail(limits=1, limit_granule=4 * MIB)
        with pytest.raises(LimitUntaken, match=r"it holds 1,077,936,128 B afterwards"):
            rig.sensors.limit("GPU-0", tmp_path, GIB + MIB)

    @pytest.mark.parametrize("code", [10, 27, 999])
    def test_a_driver_that_gives_no_answer_has_refused_nothing(
        self, rig: StubRig, tmp_path: Path, code: int
    ) -> None:
        rig.stub.fail(limits=code)
        for ask in (rig.sensors.means, lambda group: rig.sensors.limit("GPU-0", group, GIB)):
            with pytest.raises(NvmlUnavailable, match=f"NVML error {code}"):
                ask(tmp_path)
        rig.offer_limits()
        rig.sensors.limit("GPU-0", tmp_path, GIB)

    def test_a_limit_of_a_group_that_is_not_there_does_not_take(
        self, rig: StubRig, tmp_path: Path
    ) -> None:
        rig.offer_limits()
        with pytest.raises(LimitUntaken, match="NVML error 6"):
            rig.sensors.limit("GPU-0", tmp_path / "gone", GIB)

    def test_slices_take_no_limits_and_are_watched(self, rig: StubRig, tmp_path: Path) -> None:
        rig.offer_limits()
        rig.stub.set("GPU-0", mig=1, slices=(StubGpu("MIG-a"),))
        found = {uuid: by for uuid, (by, _) in rig.sensors.means(tmp_path).items()}
        assert found == {"MIG-a": MemoryMeans.WATCH, "GPU-1": MemoryMeans.DRIVER_LIMIT}

    def test_where_no_process_is_told_a_run_has_its_slice_or_gpu_alone(self, rig: StubRig) -> None:
        rig.stub.set("GPU-0", mig=1, slices=(StubGpu("MIG-a"),))
        rig.stub.fail(processes=0)
        found = {uuid: by for uuid, (by, _) in rig.sensors.means(None).items()}
        assert found == {"MIG-a": MemoryMeans.MIG, "GPU-1": MemoryMeans.WHOLE}


class ImitationRig:
    """The real adapter and the real pynvml over NVIDIA's own imitation."""

    def __init__(self, gpus: ImitatedGpus, sensors: GpuSensors) -> None:
        self._gpus = gpus
        self.sensors = sensors

    def use(self, uuid: str, used_bytes: int, processes: dict[int, int | None]) -> None:
        assert not processes  # it names none to pynvml
        self._gpus.use(uuid, used_bytes)

    def lose(self, uuid: str) -> None:
        self._gpus.set(uuid, LOST)


class TestImitatedGpus(GpuSensorsContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[GpuRig]:
        gpus = ImitatedGpus(tmp_path, ["GPU-0", "GPU-1"])
        with elsewhere(gpus) as sensors:
            yield ImitationRig(gpus, sensors)

    def test_its_driver_has_no_limits(self, rig: GpuRig, tmp_path: Path) -> None:
        with pytest.raises(LimitUntaken, match="NVML error 13: Function Not Found"):
            rig.sensors.limit("GPU-0", tmp_path, GIB)

    def test_what_the_driver_keeps_is_no_programs(self, rig: GpuRig) -> None:
        (idle, _) = rig.sensors.read()
        assert (idle.used_bytes, idle.driver_bytes, idle.program_bytes) == (GIB, GIB, 0)

    def test_each_sickness_is_seen_once_and_alone(self, tmp_path: Path) -> None:
        gpus = ImitatedGpus(tmp_path, ["GPU-0", "GPU-1"])
        with elsewhere(gpus) as sensors:
            (well, _) = sensors.health()
            assert sicknesses(well) == {}
            gpus.set("GPU-0", ecc_uncorrectable(48))
            sick, other = sensors.health()
            assert set(sicknesses(sick)) == {Sickness.ECC, Sickness.ROW_REMAP}
            assert (sensors.xids(), sicknesses(other)) == ([("GPU-0", 48)], {})
            sensors.health()
            assert sensors.xids() == []
            gpus.heal()
            gpus.set("GPU-1", {"thermal": {"temperature_gpu_c": 95}})
            gpus.set("GPU-0", {"pcie": {"current_link_width": 8}, "utilization": {"gpu": 50}})
            narrow, hot = sensors.health()
            assert (list(sicknesses(narrow)), list(sicknesses(hot))) == (
                [Sickness.LINK_WIDTH],
                [Sickness.HOT],
            )
            gpus.set("GPU-0", LOST)  # takes no Xid of the other with it
            gpus.set("GPU-1", ecc_uncorrectable(31))
            (left,) = sensors.health()
            assert (left.uuid, sensors.xids()) == ("GPU-1", [("GPU-1", 31)])

    def test_the_xid_of_a_gpu_that_falls_off_the_bus_is_not_its_neighbours(
        self, tmp_path: Path
    ) -> None:
        gpus = ImitatedGpus(tmp_path, ["GPU-0", "GPU-1"])
        with elsewhere(gpus) as sensors:
            sensors.health()
            gpus.set("GPU-0", OFF_THE_BUS)
            sensors.read()
            sensors.health()
            assert sensors.xids() == [("GPU-0", 79)]
            for _ in range(3):  # NVML is started anew, finds it lost, and tells the Xid again
                sensors.retry_lost()
                sensors.read()
                sensors.health()
            assert {uuid for uuid, _ in sensors.xids()} <= {"GPU-0"}

    def test_what_its_parts_do_is_told_from_the_second_reading_on(self, tmp_path: Path) -> None:
        gpus = ImitatedGpus(tmp_path, ["GPU-0", "GPU-1"])
        gpus.set(
            "GPU-0",
            {"utilization": {"gpu": 80, "memory": 30}},
            {"clocks_throttle_reasons": {"gpu_idle": False, "sw_power_cap": True}},
        )
        with elsewhere(gpus) as sensors:
            assert [gpu.sm_frac for gpu in sensors.read()] == [None, None]
            time.sleep(0.2)
            busy, idle = sensors.read()
            # Half of what is utilised are tensors to it, by its own table.
            assert (busy.sm_frac, busy.tensor_frac, busy.bandwidth_frac) == (0.8, 0.4, 0.3)
            assert (idle.sm_frac, idle.tensor_frac, idle.bandwidth_frac) == (0.0, 0.0, 0.0)
            assert [gpu.power_limited_frac for gpu in (busy, idle)] == [1.0, 0.0]
            gpus.set("GPU-0", LOST)
            time.sleep(0.2)
            (left,) = sensors.read()
            assert left.sm_frac == 0.0

    def test_how_far_gpus_are_from_each_other_is_told(self, tmp_path: Path) -> None:
        names = [f"GPU-{n}" for n in range(8)]  # four at each of two sockets
        with elsewhere(ImitatedGpus(tmp_path, names)) as sensors:
            gpus = sensors.gpus()
        first, *others = names
        near = [gpus[0].distances[other] for other in others]
        assert near == [10, 10, 10, 50, 50, 50, 50]
        assert closeness(gpus[:4]) == "joined by NVLink, behind the same PCIe switches"
        assert closeness(gpus[3:5]) == "joined by NVLink, across NUMA nodes"
        assert first not in gpus[0].distances

    def test_what_is_offered_is_read(self, rig: GpuRig) -> None:
        (gpu, _), (links, _) = rig.sensors.read(), rig.sensors.links()
        assert (gpu.utilisation_frac, gpu.temperature_c, gpu.power_w) == (0.0, 34, 95.0)
        assert gpu.clock_frac == 345 / 1980
        assert gpu.power_limited_frac == gpu.heat_limited_frac == 0.0  # it is idle, which is none
        assert links.pcie == links.pcie_at_most == Pcie(5, 16)
        assert links.nvlink is not None
        assert links.nvlink.links == 18


class TestFakeHost(HostSensorsContract):
    @pytest.fixture
    def host(self) -> HostSensors:
        return FakeHost()


class TestNodeHost(HostSensorsContract):
    @pytest.fixture
    def host(self, tmp_path: Path) -> HostSensors:
        return NodeHost(tmp_path / "not" / "yet")
