"""The memory a container needed, put together from readings of its group."""

from headway.cgroups import GroupReading
from headway.runtime.run_groups import MemoryPeak
from headway.units import MIB


def reading(peak: int | None, used: int | None, droppable: int) -> GroupReading:
    return GroupReading(
        None if peak is None else peak * MIB, None if used is None else used * MIB,
        droppable * MIB, cpu_s=1.0,
    )  # fmt: skip


def highest(*readings: GroupReading) -> int:
    peak = MemoryPeak()
    for each in readings:
        peak = peak.after(each)
    return (peak.usage().host_peak_bytes or 0) // MIB


def test_page_cache_is_not_needed() -> None:
    cold = [reading(120, 120, 90), reading(360, 360, 220), reading(362, 340, 215)]
    warm = [reading(30, 30, 2), reading(145, 145, 5), reading(147, 130, 5)]
    assert highest(*cold) == 147  # the kernel's peak less what could be dropped
    assert highest(*warm) == 142


def test_a_spike_between_two_readings_is_seen() -> None:
    assert highest(reading(150, 150, 50), reading(450, 150, 50)) == 400


def test_a_peak_from_before_says_nothing_new() -> None:
    """Cache that went since would else count as needed."""
    assert highest(reading(300, 300, 200), reading(300, 120, 20)) == 100


def test_memory_pressed_out_of_the_cache_counts() -> None:
    """At its limit a program grows at the cost of the cache; the kernel's peak stands still."""
    assert highest(reading(400, 400, 300), reading(400, 400, 50)) == 350


def test_without_a_peak_the_readings_alone_count() -> None:
    assert highest(reading(None, 90, 10), reading(None, 70, 10)) == 80


def test_nothing_known_is_not_zero() -> None:
    assert MemoryPeak().after(reading(None, None, 0)).usage().host_peak_bytes is None


def test_what_is_held_now() -> None:
    usage = MemoryPeak().after(reading(400, 300, 120)).usage()
    assert usage.host_used_bytes == 180 * MIB
    assert usage.host_cache_bytes == 120 * MIB
    assert usage.cpu_s == 1.0
