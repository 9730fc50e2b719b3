"""The real pynvml over the stub library: what the contract does not ask of a fake."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.lease import GpuGrant, Lease
from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.node import Capacity, Node
from headway.policy.headroom import compute_headroom
from headway.telemetry.errors import NvmlUnavailable, TelemetryTimeout
from headway.telemetry.gpu import KERNEL_DRIVER, NvmlGpus
from headway.telemetry.reading import node_reading, with_owners
from headway.units import GIB, KIB
from tests.nvml.stub import (
    DRIVER_MISMATCH,
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    STATE_VARIABLE,
    UNKNOWN_ERROR,
    StubGpu,
    StubGpus,
    build_stub,
)
from tests.ports.telemetry import FakeHost


class HandClock(SystemClock):
    at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubGpus]:
    stub = StubGpus(tmp_path / "gpus.state")
    monkeypatch.setenv(STATE_VARIABLE, str(stub.path))
    stub.add("GPU-a", name="NVIDIA H200")
    yield stub
    stub.heal()
    time.sleep(0.02)


Make = Callable[..., NvmlGpus]


@pytest.fixture
def make(library: Path) -> Make:
    return lambda **values: NvmlGpus(library, **{"deadline_s": 0.2, **values})


def test_everything_that_is_offered_is_read(stub: StubGpus, make: Make) -> None:
    stub.set(
        "GPU-a", used=10 * GIB, reserved=GIB, util=37, temp=61, power_mw=350_500,
        pcie_rx=9 * 1024, pcie_tx=1024,
    )  # fmt: skip
    (gpu,) = make().read()
    assert (gpu.name, gpu.memory_bytes, gpu.used_bytes) == ("NVIDIA H200", 80 * GIB, 11 * GIB)
    assert (gpu.utilisation_frac, gpu.temperature_c, gpu.power_w) == (0.37, 61, 350.5)
    assert gpu.pcie_rx_bytes_per_s == 9 * 1024 * KIB
    assert gpu.pcie_tx_bytes_per_s == 1024 * KIB
    assert (gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s) == (None, None)


def test_what_is_not_offered_is_none_never_zero(stub: StubGpus, make: Make) -> None:
    stub.set("GPU-a", util=-1, temp=-1, power_mw=-1, pcie_rx=-1, pcie_tx=-1)
    (gpu,) = make().read()
    assert gpu.utilisation_frac is gpu.temperature_c is gpu.power_w is None
    assert gpu.pcie_rx_bytes_per_s is gpu.pcie_tx_bytes_per_s is None


def test_an_old_driver_counts_what_it_keeps_too(stub: StubGpus, make: Make) -> None:
    stub.set("GPU-a", used=10 * GIB, reserved=GIB)
    stub.fail(memory_v2=0)
    assert make().read()[0].used_bytes == 11 * GIB


def test_memory_that_is_not_told_is_an_error(stub: StubGpus, make: Make) -> None:
    stub.set("GPU-a", total=-1)
    for call in (make().gpus, make().read):
        with pytest.raises(NvmlUnavailable, match="GPU-a"):
            call()


def test_nvlink_traffic_is_a_difference(stub: StubGpus, make: Make) -> None:
    clock = HandClock()
    gpus = make(clock=clock)
    stub.set("GPU-a", nvlink_rx=1000, nvlink_tx=5000)
    assert gpus.read()[0].nvlink_rx_bytes_per_s is None
    clock.at_s = 2.0
    stub.set("GPU-a", nvlink_rx=1600, nvlink_tx=5020)
    (gpu,) = gpus.read()
    assert gpu.nvlink_rx_bytes_per_s == 300 * KIB
    assert gpu.nvlink_tx_bytes_per_s == 10 * KIB
    clock.at_s = 3.0
    stub.set("GPU-a", nvlink_rx=0, nvlink_tx=0)
    assert gpus.read()[0].nvlink_rx_bytes_per_s is None  # the counters were reset


def test_activity_is_of_the_time_between_two_readings(stub: StubGpus, make: Make) -> None:
    clock = HandClock()
    gpus = make(clock=clock)
    stub.set("GPU-a", sm=10, tensor=20, dram=30)

    def activity(at_s: float) -> tuple[float | None, ...]:
        clock.at_s = at_s
        (gpu,) = gpus.read()
        return gpu.sm_frac, gpu.tensor_frac, gpu.bandwidth_frac

    nothing = (None, None, None)
    assert activity(0.0) == nothing
    stub.set("GPU-a", sm=70, tensor=4, dram=-1)
    assert activity(1.0) == (0.7, 0.04, None)  # a metric that this GPU lacks is not 0
    assert activity(1.05) == nothing  # nothing is counted in so little time
    assert activity(2.0) == (0.7, 0.04, None)


def test_a_gpu_without_such_counters_is_read_all_the_same(stub: StubGpus, make: Make) -> None:
    stub.set("GPU-a", util=50)
    gpus = make()
    for _ in range(2):
        (gpu,) = gpus.read()
        assert (gpu.utilisation_frac, gpu.sm_frac, gpu.clock_frac) == (0.5, None, None)
        assert gpu.power_limited_frac is gpu.heat_limited_frac is None


@pytest.mark.parametrize(
    ("reasons", "by_power", "by_heat"),
    [
        (0x1, 0.0, 0.0),  # idle
        (0x4, 1.0, 0.0),  # the power cap
        (0x80, 1.0, 0.0),  # the power brake
        (0x20, 0.0, 1.0),  # heat, by software
        (0x48, 0.0, 1.0),  # heat, by hardware, which says so twice
        (0x8, 1.0, 0.0),  # the hardware alone: too high a draw
        (0x44, 1.0, 1.0),
    ],
)
def test_what_holds_the_clocks_down_is_told(
    stub: StubGpus, make: Make, reasons: int, by_power: float, by_heat: float
) -> None:
    stub.set("GPU-a", clock=990, clock_max=1980, clock_limits=reasons)
    (gpu,) = make().read()
    assert (gpu.clock_frac, gpu.power_limited_frac, gpu.heat_limited_frac) == (
        0.5, by_power, by_heat,
    )  # fmt: skip


def test_slices_take_the_place_of_a_divided_gpu(stub: StubGpus, make: Make) -> None:
    parts = tuple(StubGpu(f"MIG-{n}", total=10 * GIB, used=n * GIB, util=-1) for n in range(2))
    stub.add("GPU-b", mig=1, slices=parts)
    stub.add("GPU-c", mig=1)
    gpus = make()
    assert [(gpu.uuid, gpu.index) for gpu in gpus.gpus()] == [
        ("GPU-a", 0), ("MIG-0", 1), ("MIG-1", 1),
    ]  # fmt: skip
    assert [gpu.used_bytes for gpu in gpus.read()] == [0, 0, GIB]


def test_a_gpu_that_is_no_longer_listed_is_lost(stub: StubGpus, make: Make) -> None:
    stub.add("GPU-b")
    gpus = make()
    assert len(gpus.gpus()) == 2
    stub.remove("GPU-b")
    stub.fail(error=UNKNOWN_ERROR)  # makes NVML start anew
    with pytest.raises(NvmlUnavailable):
        gpus.read()
    stub.heal()
    assert [gpu.uuid for gpu in gpus.read()] == ["GPU-a"]
    assert gpus.lost() == {"GPU-b": "NVML does not list it any more"}
    assert len(gpus.gpus()) == 2


def test_a_lost_gpu_is_asked_again_once_a_minute_and_comes_back(stub: StubGpus, make: Make) -> None:
    stub.add("GPU-b")
    clock = HandClock()
    gpus = make(clock=clock)
    assert len(gpus.read()) == 2
    stub.set("GPU-b", error=GPU_IS_LOST)
    assert [gpu.uuid for gpu in gpus.read()] == ["GPU-a"]
    assert gpus.lost() == {"GPU-b": f"NVML error {GPU_IS_LOST}: GPU is lost"}
    stub.heal()
    clock.at_s = 59.0
    assert len(gpus.read()) == 1
    clock.at_s = 60.0
    assert [gpu.uuid for gpu in gpus.read()] == ["GPU-a", "GPU-b"]
    assert gpus.lost() == {}


def test_a_gpu_that_stays_lost_keeps_its_cause(stub: StubGpus, make: Make) -> None:
    stub.add("GPU-b")
    clock = HandClock()
    gpus = make(clock=clock)
    gpus.read()
    stub.set("GPU-b", error=GPU_IS_LOST)
    for clock.at_s in (1.0, 61.0, 122.0):
        assert len(gpus.read()) == 1
        assert gpus.lost() == {"GPU-b": f"NVML error {GPU_IS_LOST}: GPU is lost"}


def test_a_gpu_that_was_divided_anew_is_not_lost(stub: StubGpus, make: Make) -> None:
    halves = (StubGpu("MIG-0", total=40 * GIB), StubGpu("MIG-1", total=40 * GIB))
    stub.add("GPU-b", mig=1, slices=halves)
    stub.add("GPU-c", mig=0)
    had = make().gpus()
    stub.set("GPU-b", slices=(StubGpu("MIG-2", total=80 * GIB),))
    stub.set("GPU-c", mig=1, slices=(StubGpu("MIG-3"),))
    later = make()
    later.expect(had)
    found = ["GPU-a", "MIG-2", "MIG-3"]
    assert [gpu.uuid for gpu in later.gpus()] == found
    assert [gpu.uuid for gpu in later.read()] == found
    assert later.lost() == {}


def test_the_next_process_knows_the_cause_too(stub: StubGpus, make: Make) -> None:
    """It is told what the node had; NVML still counts the GPU, and says why it is lost."""
    stub.add("GPU-b")
    had = make().gpus()
    stub.set("GPU-b", error=GPU_IS_LOST)
    later = make()
    later.expect(had)
    assert later.gpus() == had
    assert [gpu.uuid for gpu in later.read()] == ["GPU-a"]
    assert later.lost() == {"GPU-b": f"NVML error {GPU_IS_LOST}: GPU is lost"}


def test_a_gpu_lost_before_the_start_does_not_take_the_others(stub: StubGpus, make: Make) -> None:
    stub.add("GPU-b", error=GPU_IS_LOST)
    gpus = make()
    assert [gpu.uuid for gpu in gpus.gpus()] == ["GPU-a"]
    assert [gpu.uuid for gpu in gpus.read()] == ["GPU-a"]


@pytest.mark.parametrize("code", [DRIVER_MISMATCH, DRIVER_NOT_LOADED, UNKNOWN_ERROR])
def test_a_driver_that_does_not_start_is_an_error(stub: StubGpus, make: Make, code: int) -> None:
    stub.fail(init_error=code)
    with pytest.raises(NvmlUnavailable, match=f"NVML error {code}"):
        make().gpus()


def test_a_library_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NvmlUnavailable, match=r"none\.so"):
        NvmlGpus(tmp_path / "none.so").gpus()


@pytest.mark.skipif(KERNEL_DRIVER.exists(), reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_driver_has_no_gpus() -> None:
    program = (
        "from headway.telemetry.gpu import NvmlGpus\n"
        "gpus = NvmlGpus()\n"
        "assert gpus.gpus() == gpus.read() == ()\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)


def test_a_hang_costs_one_thread_and_later_reads_no_time(stub: StubGpus, make: Make) -> None:
    gpus = make()
    gpus.read()
    before = threading.active_count()
    stub.fail(hang=1)
    with pytest.raises(TelemetryTimeout):
        gpus.read()
    started = time.monotonic()
    for _ in range(50):
        with pytest.raises(TelemetryTimeout, match="NVML"):
            gpus.read()
    assert time.monotonic() - started < 5  # each would wait for 0.2 s
    assert threading.active_count() == before + 1


@pytest.mark.parametrize("own_gib", [0, 12, 40])
def test_a_strangers_memory_is_not_offered_beside_what_is_promised(
    stub: StubGpus, make: Make, own_gib: int
) -> None:
    """80 GiB, 40 of them promised, a stranger on 30: ten are there, whatever the run holds yet."""
    processes = {4711: 30 * GIB} | ({17: own_gib * GIB} if own_gib else {})
    stub.set("GPU-a", used=(30 + own_gib) * GIB, processes=processes)
    reading = with_owners(node_reading(make(), FakeHost(), SystemClock()), {17: "run"}, {})
    assert reading.gpus is not None
    assert {each.pid: each.run_id for each in reading.gpus[0].processes}[4711] == ""
    at = reading.at
    grants = (GpuGrant("GPU-a", 40 * GIB),)
    held = Lease(1, "run", 1, "n", "t", GIB, 1.0, grants, {}, at, at)
    node = Node("n", "pool", Capacity(8, 32 * GIB, make().gpus()))
    (gpu,) = compute_headroom(node, [held], reading).gpus
    assert gpu.free_bytes == 10 * GIB


@pytest.mark.parametrize("named", [{}, {4711: -1}])
def test_where_the_driver_tells_nothing_of_processes_all_use_is_a_strangers(
    stub: StubGpus, make: Make, named: dict[int, int]
) -> None:
    stub.set("GPU-a", used=40 * GIB, processes=named)
    reading = with_owners(node_reading(make(), FakeHost(), SystemClock()), {4711: "run"}, {})
    at = reading.at
    held = Lease(1, "run", 1, "n", "t", GIB, 1.0, (GpuGrant("GPU-a", 20 * GIB),), {}, at, at)
    node = Node("n", "pool", Capacity(8, 32 * GIB, make().gpus()))
    (gpu,) = compute_headroom(node, [held], reading).gpus
    assert gpu.free_bytes == 20 * GIB


def test_what_the_driver_keeps_is_told_apart(stub: StubGpus, make: Make) -> None:
    stub.set("GPU-a", used=2 * GIB, reserved=GIB)
    assert [(gpu.used_bytes, gpu.driver_bytes) for gpu in make().read()] == [(3 * GIB, GIB)]
    stub.fail(memory_v2=0)
    assert [(gpu.used_bytes, gpu.driver_bytes) for gpu in make().read()] == [(3 * GIB, 0)]


def test_a_node_reading_says_why_there_are_no_gpus(stub: StubGpus, make: Make) -> None:
    gpus, host = make(), FakeHost()
    assert node_reading(gpus, host, SystemClock()).gpus == gpus.read()
    stub.add("GPU-b")
    gpus = make()
    gpus.read()
    stub.set("GPU-a", error=GPU_IS_LOST)
    reading = node_reading(gpus, host, SystemClock())
    assert [gpu.uuid for gpu in reading.gpus or ()] == ["GPU-b"]
    assert list(reading.lost_gpus) == ["GPU-a"]
    assert reading.host == host.read()
    stub.fail(error=UNKNOWN_ERROR)
    reading = node_reading(gpus, host, SystemClock())
    assert reading.gpus is None
    assert f"NVML error {UNKNOWN_ERROR}" in reading.gpu_error


def test_links_are_named_by_generation_and_lanes(stub: StubGpus, make: Make) -> None:
    stub.set(
        "GPU-a", pcie_gen=1, pcie_width=16, pcie_gen_max=5, pcie_width_max=16, nvlinks=18,
        nvlink_version=6, cpu_mask=0b1111_0000,
    )  # fmt: skip
    (links,) = make().links()
    near = frozenset({4, 5, 6, 7})
    assert links == GpuLinks("GPU-a", Pcie(1, 16), Pcie(5, 16), NvLink("4.0", 18), near)


def test_links_that_are_down_do_not_count(stub: StubGpus, make: Make) -> None:
    stub.set("GPU-a", nvlinks=3, nvlink_version=99)
    assert make().links()[0].nvlink == NvLink("of an unknown version", 3)
    stub.set("GPU-a", nvlinks=0)
    assert make().links()[0].nvlink is None


def test_links_that_are_not_offered_are_none(stub: StubGpus, make: Make) -> None:
    assert make().links() == (GpuLinks("GPU-a"),)
    stub.set("GPU-a", cpu_mask=0)
    assert make().links()[0].cpus is None
