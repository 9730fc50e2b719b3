"""The host's own figures."""

from collections import namedtuple

import pytest

from headway.telemetry.host import _busy_frac, boot_id

Times = namedtuple("Times", "user system idle iowait guest")  # noqa: PYI024 - as psutil's is


def test_waiting_for_the_disk_is_not_being_busy() -> None:
    before = Times(10.0, 5.0, 100.0, 1.0, 3.0)
    assert _busy_frac(before, Times(12.0, 6.0, 106.0, 2.0, 5.0)) == pytest.approx(0.3)


def test_no_time_passed_is_not_busy() -> None:
    same = Times(1.0, 1.0, 1.0, 1.0, 0.0)
    assert _busy_frac(same, same) == 0.0


def test_a_boot_has_one_name() -> None:
    assert boot_id() == boot_id() != ""
