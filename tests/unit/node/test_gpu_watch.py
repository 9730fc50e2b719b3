"""The watch over a node's GPUs: what it drains, and when it takes one back."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from headway.clock import SystemClock
from headway.model.gpu_health import GpuDrain, Sickness
from headway.model.node import GpuProcess, HostReading, NodeReading
from headway.node.gpu_watch import GpuWatch
from headway.policy.settings import OnStranger, PolicySettings
from headway.telemetry.errors import NvmlUnavailable, TelemetryTimeout
from tests.ports.telemetry import FakeGpus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Booted(SystemClock):
    """Of a machine that was started then."""

    def __init__(self, at: datetime) -> None:
        self._at, self.at_s = at, 0.0

    def now(self) -> datetime:
        return self._at

    def boottime_s(self) -> float:
        return 0.0

    def monotonic_s(self) -> float:
        return self.at_s


class Bench:
    """A watch, its GPUs, and what the ledger has."""

    def __init__(self, drains: dict[str, GpuDrain] | None = None) -> None:
        self.gpus, self.drains = FakeGpus.idle(3), drains or {}
        nodes = SimpleNamespace(gpu_drains=lambda _: dict(self.drains), judge_gpus=self._judge)
        self.site: Any = SimpleNamespace(
            gpus=self.gpus,
            clock=Booted(NOON - timedelta(days=1)),
            ledger=SimpleNamespace(nodes=nodes),
            settings=SimpleNamespace(node="n"),
            worker_token="t",
            policy_settings=PolicySettings(on_stranger=OnStranger.DRAIN),
        )
        self.reading: NodeReading | None = None
        self.watch = GpuWatch(self.site)

    def _judge(self, _: str, __: str, *, sick: Any, well: Any) -> None:
        for uuid in well:
            del self.drains[uuid]
        for uuid, why in sick.items():
            had = self.drains[uuid].why if uuid in self.drains else {}
            self.drains[uuid] = GpuDrain(NOON, {**had, **why})

    def round(self, looks: int = 1, every_s: float = 1.0) -> dict[str, set[Sickness]]:
        for _ in range(looks):
            self.watch.look(self.reading)
            self.site.clock.at_s += every_s
        self.watch.settle()
        return {uuid: set(each.why) for uuid, each in self.drains.items()}

    def was_reset(self, uuid: str) -> None:
        self.drains[uuid] = GpuDrain(NOON, self.drains[uuid].why, reset_at=NOON)


def test_an_xid_of_the_gpu_drains_it_alone_and_one_of_a_program_does_not() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-0", xids=(31,))
    assert (bench.watch.look(), bench.round()) == (False, {})
    bench.gpus.sicken("GPU-0", xids=(48,))
    assert bench.watch.look()
    assert bench.round() == {"GPU-0": {Sickness.XID}}
    bench.gpus.sicken("GPU-0", remap_failed=True)  # a second sickness joins the first
    assert bench.round() == {"GPU-0": {Sickness.XID, Sickness.ROW_REMAP}}


def test_heat_counts_once_it_has_lasted() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-1", temperature_c=90, slowdown_c=87)
    assert bench.round(looks=10) == {}
    assert bench.round() == {"GPU-1": {Sickness.HOT}}


def test_how_long_it_has_lasted_is_a_time_and_no_number_of_looks() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-1", temperature_c=90, slowdown_c=87)
    assert bench.round(looks=20, every_s=0.4) == {}
    bench = Bench()
    bench.gpus.sicken("GPU-1", temperature_c=90, slowdown_c=87)
    assert bench.round(looks=3, every_s=60.0) == {}  # nobody knows of the time in between
    assert bench.round(looks=3, every_s=4.0) == {}
    assert bench.round() == {"GPU-1": {Sickness.HOT}}


def test_a_lost_gpu_is_drained() -> None:
    bench = Bench()
    bench.gpus.lose("GPU-2")
    assert bench.round() == {"GPU-2": {Sickness.LOST}}


def test_one_that_was_reset_is_taken_back_only_if_a_later_look_finds_nothing() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-0", xids=(48,), ecc_uncorrectable=2)
    bench.round()
    bench.was_reset("GPU-0")
    bench.round()
    both = {Sickness.XID, Sickness.ECC}
    assert bench.round() == {"GPU-0": both}  # ECC still counts errors
    assert bench.drains["GPU-0"].reset_at is None
    bench.gpus.sicken("GPU-0", ecc_uncorrectable=0)
    assert bench.round() == {"GPU-0": both}  # nobody has said that it was reset
    bench.was_reset("GPU-0")
    bench.round()
    assert bench.round() == {}


def test_a_worker_that_starts_anew_judges_what_was_drained_before() -> None:
    old = GpuDrain(NOON, {Sickness.LOST: "lost"})
    bench = Bench({"GPU-0": old, "GPU-1": GpuDrain(NOON, {Sickness.LINK_WIDTH: "x8"})})
    bench.gpus.sicken("GPU-1", busy=True, lanes=8, lanes_at_most=16)
    bench.round()
    assert bench.round() == {"GPU-1": {Sickness.LINK_WIDTH}}


def test_gpus_that_cannot_be_read_change_nothing() -> None:
    bench = Bench()
    bench.gpus.error = TelemetryTimeout("NVML", 5.0)
    assert (bench.watch.look(), bench.round()) == (False, {})


@pytest.mark.parametrize("kind", [Sickness.XID, Sickness.XID_CONTAINED])
def test_an_xid_outlasts_its_worker_but_not_its_boot(kind: Sickness) -> None:
    drains = {"GPU-0": GpuDrain(NOON, {kind: "Xid", Sickness.LOST: "lost"})}
    bench = Bench(drains)
    bench.site.clock = Booted(NOON - timedelta(minutes=1))
    assert bench.round() == bench.round() == {"GPU-0": {kind, Sickness.LOST}}
    bench.was_reset("GPU-0")
    bench.round()
    assert bench.round() == {}
    bench = Bench({"GPU-0": GpuDrain(NOON, {kind: "Xid"})})
    bench.site.clock = Booted(NOON + timedelta(minutes=1))
    bench.round()
    assert bench.round() == {}


def test_one_that_was_hot_is_taken_back_once_it_has_been_cool() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-1", temperature_c=90, slowdown_c=87)
    bench.round(looks=11)
    bench.gpus.sicken("GPU-1", temperature_c=86)
    assert bench.round(looks=10) == {"GPU-1": {Sickness.HOT}}
    bench.gpus.sicken("GPU-1", temperature_c=87)
    bench.round()
    bench.gpus.sicken("GPU-1", temperature_c=86)
    assert bench.round(looks=10) == {"GPU-1": {Sickness.HOT}}
    assert bench.round() == {}


def test_cool_again_takes_back_nothing_else() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-1", temperature_c=90, slowdown_c=87, remap_failed=True)
    bench.round(looks=11)
    bench.gpus.sicken("GPU-1", temperature_c=40, remap_failed=False)
    assert bench.round(looks=20) == {"GPU-1": {Sickness.HOT, Sickness.ROW_REMAP}}


def test_a_gpu_that_is_lost_between_two_looks_is_news_once() -> None:
    bench = Bench()
    assert not bench.watch.look()
    bench.gpus.lose("GPU-2")
    assert [bench.watch.look(), bench.watch.look()] == [True, False]


def test_xids_met_before_a_look_failed_count() -> None:
    bench = Bench()
    bench.gpus.sicken("GPU-0", xids=(48,))
    bench.gpus.error = NvmlUnavailable("another GPU")
    assert bench.watch.look()
    assert bench.round() == {"GPU-0": {Sickness.XID}}


def test_a_failure_is_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for error in (
        NvmlUnavailable("a"),
        NvmlUnavailable("a"),
        NvmlUnavailable("b"),
        TelemetryTimeout("NVML", 5.0),
        TelemetryTimeout("NVML", 6.0),
        None,
        NvmlUnavailable("a"),
    ):
        bench.gpus.error = error
        bench.watch.look()
    assert len(caplog.records) == 4


def test_strangers_drain_a_gpu_while_they_are_there_if_the_operator_says_so() -> None:
    bench = Bench()
    process = GpuProcess(4711, 1, user="alice", command="ollama serve", since=NOON)
    bench.gpus.show("GPU-1", processes=(process, GpuProcess(17, 1, "run")))
    bench.gpus.show("GPU-2", processes=(GpuProcess(18, 1, "run"),))
    bench.reading = NodeReading(NOON, HostReading(1, 0, 0.0, 1), bench.gpus.read())
    assert bench.round(looks=10) == {}  # whose a program is may not be known at once
    assert bench.round() == {"GPU-1": {Sickness.STRANGERS}}
    said = "in use by alice's ollama serve (pid 4711, since 2026-01-01 12:00 UTC)"
    assert bench.drains["GPU-1"].told == said
    bench.reading = None
    assert bench.round(looks=10) == {"GPU-1": {Sickness.STRANGERS}}
    assert bench.round() == {}


def test_a_drain_for_strangers_names_those_of_now() -> None:
    bench = Bench()

    def told(*held: tuple[int, int]) -> str:
        bench.gpus.show("GPU-1", processes=tuple(GpuProcess(*each) for each in held))
        bench.reading = NodeReading(NOON, HostReading(1, 0, 0.0, 1), bench.gpus.read())
        bench.round(looks=11)
        return bench.drains["GPU-1"].told

    first = "in use by pid 17, of which nothing can be read here"
    assert told((17, 1)) == first
    assert told((17, 1), (18, 2)) == f"{first} and 1 more"  # whichever holds most
    assert told((18, 2)) == first.replace("17", "18")


def test_strangers_drain_nothing_otherwise() -> None:
    bench = Bench()
    bench.site.policy_settings = PolicySettings()
    bench.gpus.show("GPU-1", processes=(GpuProcess(4711, 1),))
    bench.reading = NodeReading(NOON, HostReading(1, 0, 0.0, 1), bench.gpus.read())
    assert bench.round(looks=20) == {}


def test_a_worker_that_starts_anew_takes_back_none_that_strangers_are_on() -> None:
    bench = Bench({"GPU-1": GpuDrain(NOON, {Sickness.STRANGERS: "in use by alice's a.out"})})
    bench.gpus.show("GPU-1", processes=(GpuProcess(4711, 1),))
    bench.reading = NodeReading(NOON, HostReading(1, 0, 0.0, 1), bench.gpus.read())
    bench.watch.settle()  # it may come before the first look
    assert bench.round() == bench.round(looks=20) == {"GPU-1": {Sickness.STRANGERS}}
    bench.site.policy_settings = PolicySettings()
    assert bench.round() == {}
