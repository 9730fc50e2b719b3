"""The table from NVML's counters."""

from datetime import UTC, datetime, timedelta

import pytest

from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.profile import Direction, ProfileSource
from headway.model.telemetry import TelemetryPoint
from headway.profile.activity import with_activity
from headway.profile.report import from_counters
from headway.profile.text import copies_text, profile_view, summary

START = datetime(2026, 1, 1, tzinfo=UTC)
LINKS = GpuLinks("GPU-a", Pcie(3, 16), Pcie(3, 16), NvLink("4.0", 18))


def points(**rates: list[float | None]) -> list[TelemetryPoint]:
    length = max(len(values) for values in rates.values())
    return [
        TelemetryPoint(START + timedelta(seconds=n), "GPU-a", **{k: v[n] for k, v in rates.items()})
        for n in range(length)
    ]


def test_what_a_gpu_receives_comes_from_the_host() -> None:
    series = points(
        pcie_rx_bytes_per_s=[8e9, 10e9], pcie_tx_bytes_per_s=[1e9, 1e9], busy_frac=[0.5, 1.0]
    )
    counted = from_counters({"GPU-a": series}, [LINKS], "there is no nsys")
    profile = with_activity(counted, {"GPU-a": series})
    assert profile.source is ProfileSource.NVML
    assert [copies_text(each) for each in profile.copies] == [
        "HtoD 9.0 of 15.8 GB/s (57 %), 16.8 GiB in 2.0 s, at most 10.0 GB/s",
        "DtoH 1.0 of 15.8 GB/s (6 %), 1.9 GiB in 2.0 s, at most 1.0 GB/s",
    ]
    assert summary(profile) == "nvml over 2.0 s, kernels ran 75 % of the time"
    assert profile.notes[0] == "there is no nsys"
    assert profile_view(profile)["copies"][0]["gpu"] == "GPU-a"


def test_nvlink_is_shown_where_it_is_used() -> None:
    used = points(nvlink_rx_bytes_per_s=[45e9, 45e9])
    (peer,) = from_counters({"GPU-a": used}, [LINKS], "").copies
    assert (peer.direction, peer.link) == (Direction.PEER_TO_PEER, "NVLink 4.0 x18")
    assert peer.limit_bytes_per_s == 450e9
    assert from_counters({"GPU-a": points(nvlink_rx_bytes_per_s=[0.0])}, [LINKS], "").copies == ()


def test_a_reading_that_is_missing_is_not_zero() -> None:
    series = points(pcie_rx_bytes_per_s=[None, 8e9, None])
    (into,) = from_counters({"GPU-a": series}, [], "").copies
    assert into.bytes_per_s == pytest.approx(8e9)
    assert (into.busy_s, into.limit_bytes_per_s) == (1.0, None)


def test_points_of_a_minute_count_sixty_times() -> None:
    series = [
        TelemetryPoint(START, "GPU-a", period_s=60, pcie_rx_bytes_per_s=1e9, busy_frac=0.2),
        TelemetryPoint(START, "GPU-a", period_s=1, pcie_rx_bytes_per_s=62e9, busy_frac=0.2),
    ]
    (into,) = from_counters({"GPU-a": series}, [], "").copies
    assert into.bytes_per_s == pytest.approx(2e9)


def test_without_any_reading_it_says_so() -> None:
    profile = from_counters({"GPU-a": []}, [], "why")
    assert profile.copies == ()
    assert profile.notes == ("why", "no PCIe or NVLink traffic of its GPUs was read in this time")


def test_a_run_without_a_gpu_has_nothing_to_count() -> None:
    profile = from_counters({}, [], "why")
    assert profile.notes == ("why", "the run held no GPU, whose copies could be counted")
    assert summary(profile) == "nvml"
