"""What is read of one GPU's health when NVML does not tell all of it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headway.model.node import Gpu
from headway.telemetry import nvml
from headway.telemetry.gpu import NvmlGpus

pynvml: Any = nvml.pynvml
UNKNOWN, LOST = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST
NOT_SUPPORTED, TIMEOUT = pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_TIMEOUT


def failing(code: int) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    return call


class Driver:
    """NVML's functions for health, as a test sets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.sets: list[int] = []
        self.made = 0
        self.waiting: dict[int, list[int]] = {}
        """Xids by event set."""
        for name in (
            "RemappedRows", "UtilizationRates", "TotalEccErrors", "CurrPcieLinkWidth",
            "MaxPcieLinkWidth", "Temperature", "TemperatureThreshold",
        ):  # fmt: skip
            self.give(f"nvmlDeviceGet{name}", failing(UNKNOWN))
        self.give("nvmlEventSetCreate", self._create)
        self.give("nvmlEventSetFree", self.sets.remove)
        self.give("nvmlDeviceRegisterEvents", lambda *_: None)
        self.give("nvmlEventSetWait_v2", self._wait)
        self.give("nvmlShutdown", lambda: None)

    def give(self, name: str, call: Callable[..., Any]) -> None:
        self._patch.setattr(pynvml, name, call)

    def _create(self) -> int:
        self.made += 1
        self.sets.append(self.made)
        return self.made

    def _wait(self, events: int, _: int) -> Any:
        xids = self.waiting.get(events, [])
        return SimpleNamespace(device=None, eventData=xids.pop(0)) if xids else failing(TIMEOUT)()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def device(uuid: str = "a") -> nvml.Device:
    return nvml.Device(None, Gpu(uuid, 0, "H100", 1), None)


def gpus_of(*devices: nvml.Device) -> NvmlGpus:
    gpus = NvmlGpus()
    gpus._devices = list(devices)
    return gpus


def test_what_cannot_be_read_takes_no_other_figure_with_it(driver: Driver) -> None:
    driver.give("nvmlDeviceGetRemappedRows", lambda _: (0, 0, 0, 1))
    driver.give("nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=0))
    (seen,) = gpus_of(device()).health()
    assert (seen.remap_failed, seen.busy, seen.temperature_c) == (True, False, None)


@pytest.mark.parametrize(("code", "asked"), [(NOT_SUPPORTED, 1), (UNKNOWN, 3)])
def test_no_event_set_is_left_where_there_are_no_events(
    driver: Driver, code: int, asked: int
) -> None:
    driver.give("nvmlDeviceRegisterEvents", failing(code))
    gpus = gpus_of(device())
    for _ in range(3):
        assert len(gpus.health()) == 1
    assert (driver.made, driver.sets) == (asked, [])


def test_event_sets_are_freed_with_nvml_and_with_a_lost_gpu(driver: Driver) -> None:
    gpus = gpus_of(device("a"), device("b"))
    gpus.health()
    assert len(driver.sets) == 2
    gpus._drop({"a"})
    assert driver.sets == [2]
    gpus._close()
    assert driver.sets == []


def test_an_xid_is_kept_when_a_later_call_fails(driver: Driver) -> None:
    gpus = gpus_of(device("a"), device("b"))
    gpus.health()
    driver.waiting = {1: [48], 2: [79]}
    driver.give("nvmlDeviceGetRemappedRows", failing(LOST))
    assert gpus.health() == ()
    assert (gpus.xids(), gpus.xids()) == ([("a", 48), ("b", 79)], [])
