"""The system's clocks."""

import time

import pytest

from headway.clock import SystemClock


def test_the_boot_time_counts_what_the_machine_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Linux's clocks only this one runs on meanwhile."""
    clocks = {time.CLOCK_BOOTTIME: 100.0, time.CLOCK_MONOTONIC: 40.0, time.CLOCK_REALTIME: 9.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert SystemClock().boottime_s() == 100.0
