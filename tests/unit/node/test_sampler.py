"""Points of readings, thinning, and what the sampler writes when the ledger is away."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import HeadwayError, LedgerUnreachable
from headway.model.container_policy import ContainerPolicy
from headway.model.node import GpuProcess, HostReading, NodeReading
from headway.model.telemetry import TelemetryPoint
from headway.node.sampler import Sampler
from headway.telemetry.thinning import points_of, thinned
from headway.units import GIB
from tests.ports.clock import FakeClock
from tests.ports.telemetry import FakeGpus, FakeHost

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOST = HostReading(64 * GIB, 4 * GIB, 0.25, 100 * GIB)


def test_memory_of_processes_is_counted_for_their_run() -> None:
    gpus = FakeGpus.idle(2)
    held = (GpuProcess(1, GIB), GpuProcess(2, 2 * GIB), GpuProcess(3, None), GpuProcess(9, GIB))
    gpus.show("GPU-1", used_bytes=5 * GIB, processes=held)
    host, first, second = points_of(
        NodeReading(NOON, HOST, gpus.read()), {1: "a", 2: "a", 3: "a", 4: "b"}
    )
    assert (host.gpu, host.used_bytes, host.disk_free_bytes) == ("", 4 * GIB, 100 * GIB)
    assert (first.gpu, first.run_bytes) == ("GPU-0", {})
    assert (second.used_bytes, second.run_bytes) == (5 * GIB, {"a": 3 * GIB})


def test_unreadable_gpus_give_no_points() -> None:
    assert len(points_of(NodeReading(NOON, HOST, None, "NVML hangs"), {})) == 1


def test_thinning_keeps_peaks_of_memory_and_means_of_rates() -> None:
    points = [
        TelemetryPoint(NOON, "GPU-0", used_bytes=GIB, busy_frac=0.2, run_bytes={"a": 1}),
        TelemetryPoint(
            NOON + timedelta(seconds=1), "GPU-0", used_bytes=3 * GIB, busy_frac=0.4,
            run_bytes={"a": 5, "b": 2},
        ),
        TelemetryPoint(NOON, disk_free_bytes=7), TelemetryPoint(NOON, disk_free_bytes=3),
    ]  # fmt: skip
    gpu, host = thinned(points, 60)
    assert (gpu.at, gpu.period_s, gpu.used_bytes) == (NOON + timedelta(seconds=1), 60, 3 * GIB)
    assert gpu.busy_frac is not None
    assert abs(gpu.busy_frac - 0.3) < 1e-9
    assert gpu.run_bytes == {"a": 5, "b": 2}
    assert gpu.power_w is None
    assert host.disk_free_bytes == 3


class Kept:
    """A telemetry table that can be away."""

    def __init__(self) -> None:
        self.away = False
        self.points: list[TelemetryPoint] = []

    def append(self, node: str, points: list[TelemetryPoint]) -> None:
        if self.away:
            raise LedgerUnreachable("postgresql://", "locked")
        self.points += points


def sampler(kept: Kept) -> Sampler:
    site: Any = SimpleNamespace(
        gpus=FakeGpus.idle(1),
        clock=FakeClock(),
        ledger=SimpleNamespace(telemetry=kept),
        runtime=SimpleNamespace(containers=list, pythons=dict),
        container_policy=ContainerPolicy(),
        settings=SimpleNamespace(node="node-a"),
        why_closed=str,
    )
    return Sampler(site, FakeHost())


def test_a_minute_of_ticks_is_sixty_points_and_one_thinned_of_each_series() -> None:
    kept = Kept()
    sampled = sampler(kept)
    for _ in range(60):
        sampled.tick()
    assert sorted(p.period_s for p in kept.points) == [1] * 120 + [60] * 2


def test_points_wait_for_a_ledger_that_is_away_but_not_without_bound() -> None:
    kept = Kept()
    kept.away = True
    sampled = sampler(kept)
    for _ in range(700):
        sampled.tick()
    kept.away = False
    for _ in range(10):
        sampled.tick()
    assert 1000 < len(kept.points) <= 1220


def test_the_first_reading_of_a_new_process_on_a_gpu_has_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampling = sampler(Kept())
    site: Any = sampling._site
    sampling.tick()
    monkeypatch.setattr("headway.node.sampler.owners", lambda _: ({7: "a"}, {}))
    site.gpus.show("GPU-0", used_bytes=GIB, processes=(GpuProcess(7, GIB),))
    (gpu,) = sampling.tick().gpus or ()
    assert [each.run_id for each in gpu.processes] == ["a"]


def test_a_run_is_no_stranger_while_the_engine_does_not_answer(tmp_path: Path) -> None:
    sampling = sampler(Kept())
    site: Any = sampling._site
    site.settings.runs_dir = tmp_path
    usage = SimpleNamespace(host_used_bytes=GIB)
    site.runtime.usage = lambda _: usage
    site.runtime.containers = lambda: [SimpleNamespace(name="c", run_id="a", pids=(7,))]
    site.gpus.show("GPU-0", used_bytes=GIB, processes=(GpuProcess(7, GIB),))
    sampling.tick()

    def silent() -> None:
        raise HeadwayError("no answer")

    site.runtime.containers = silent
    for _ in range(6):
        reading = sampling.tick()
        (gpu,) = reading.gpus or ()
        assert [each.run_id for each in gpu.processes] == ["a"]
        assert reading.run_host_bytes == {"a": GIB}


def test_nobody_is_a_stranger_before_the_engine_has_answered_once(tmp_path: Path) -> None:
    """Its runs go on while an agent starts anew."""
    sampling = sampler(Kept())
    site: Any = sampling._site
    site.settings.runs_dir = tmp_path
    site.gpus.show("GPU-0", used_bytes=5 * GIB, processes=(GpuProcess(7, GIB), GpuProcess(8, GIB)))

    def silent() -> None:
        raise HeadwayError("no answer")

    site.runtime.containers = silent
    for _ in range(6):
        (gpu,) = sampling.tick().gpus or ()
        assert (gpu.processes, gpu.used_bytes) == ((), 5 * GIB)
    site.runtime.usage = lambda _: SimpleNamespace(host_used_bytes=GIB)
    site.runtime.containers = lambda: [SimpleNamespace(name="c", run_id="a", pids=(7,))]
    for _ in range(5):
        (gpu,) = sampling.tick().gpus or ()
    assert [each.run_id for each in gpu.processes] == ["a", ""]
