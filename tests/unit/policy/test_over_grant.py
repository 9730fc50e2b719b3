"""Who is ended so that others have what they were granted of a GPU."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headway.model.node import Gpu, GpuProcess, GpuReading
from headway.policy.over_grant import most_bytes, over_grants

GPU = Gpu("GPU-0", 0, "H100", 80, reserve_bytes=4)


def seen(held: dict[str, int | None], others: int = 0) -> GpuReading:
    processes = tuple(GpuProcess(n, size, run) for n, (run, size) in enumerate(held.items()))
    used = sum(size or 0 for size in held.values()) + others
    return GpuReading("GPU-0", 0, "H100", 80, used, processes=processes)


def ended(held: dict[str, int | None], granted: dict[str, int], others: int = 0) -> list[str]:
    return list(over_grants(GPU, seen(held, others), granted))


def test_who_takes_what_others_were_granted_is_over_and_nobody_else() -> None:
    granted = {"a": 40, "b": 36}
    assert ended({"a": 50, "b": 20}, granted) == ["a"]
    assert ended({"a": 64, "b": 0}, granted) == ["a"]
    (why,) = over_grants(GPU, seen({"a": 50, "b": 20}), granted).values()
    assert why.text.startswith("holds 50 B of GPU-0, was granted 40 B, and others lack 6 B of what")
    assert (why.run_id, why.gpu, why.measured, why.limit) == ("a", "GPU-0", 50, 40)


def test_memory_that_others_do_not_lack_may_be_used() -> None:
    assert ended({"a": 60, "b": 10}, {"a": 40, "b": 20}) == []  # both fit
    assert ended({"a": 44, "b": 36}, {"a": 40, "b": 36}) == []  # b has all that it was granted
    assert ended({"a": 60}, {"a": 40}) == []


def test_a_little_above_counts_once_the_gpu_is_nearly_full() -> None:
    granted = {"a": 4000, "b": 3600}
    gpu = Gpu("GPU-0", 0, "H100", 8000, reserve_bytes=80)

    def gone(a: int, b: int) -> list[str]:
        processes = (GpuProcess(1, a, "a"), GpuProcess(2, b, "b"))
        used = a + b + 300  # the driver's
        return list(
            over_grants(
                gpu, GpuReading("GPU-0", 0, "H100", 8000, used, processes=processes), granted
            )
        )

    assert gone(4150, 2000) == []  # b lacks 50, and does not yet want them
    assert gone(4150, 3300) == ["a"]
    assert gone(4250, 2000) == ["a"]


def test_what_runs_may_have_together_is_what_the_gpu_has() -> None:
    """So the driver's limits and the watch draw one line."""
    assert [most_bytes(GPU, bytes_) for bytes_ in (38, 19, 76, 0)] == [40, 20, 80, 0]
    assert ended({"a": 40, "b": 36}, {"a": 38, "b": 38}) == []
    assert ended({"a": 41, "b": 36}, {"a": 38, "b": 38}) == []  # b's two more are free
    assert ended({"a": 43, "b": 36}, {"a": 38, "b": 38}) == ["a"]


def test_as_many_go_as_it_takes_who_is_furthest_above_first() -> None:
    granted = {"a": 20, "b": 20, "c": 36}
    assert ended({"a": 24, "b": 30, "c": 10}, granted) == ["b"]
    assert ended({"a": 38, "b": 40, "c": 0}, {"a": 5, "b": 5, "c": 66}) == ["b", "a"]


def test_what_strangers_took_is_not_laid_to_who_keeps_to_the_grant() -> None:
    assert ended({"a": 40, "b": 20}, {"a": 40, "b": 36}, others=20) == []
    assert ended({"a": 42, "b": 20}, {"a": 40, "b": 36}, others=18) == []  # its part of the reserve


def test_processes_that_are_nobodys_yet_may_be_the_neighbours() -> None:
    granted = {"a": 40, "b": 36}
    assert ended({"a": 44, "": 32}, granted) == []  # as while the engine does not answer
    assert ended({"a": 50, "": 20, "b": 5}, granted) == ["a"]


def test_nothing_is_said_where_the_driver_does_not_tell_who_holds_what() -> None:
    assert ended({"a": None, "b": 20}, {"a": 40, "b": 36}, others=60) == []


@given(st.randoms(use_true_random=False))
def test_of_random_runs_no_innocent_goes_and_whoever_goes_helps(chance: random.Random) -> None:
    granted: dict[str, int] = {}
    gpu = Gpu("GPU-0", 0, "H100", 80_000, reserve_bytes=chance.choice([0, 500, 4000]))
    left = gpu.memory_bytes - gpu.reserve_bytes
    while left and len(granted) < 16:
        granted[f"r{len(granted)}"] = size = chance.randint(1, left)
        left -= size
    held = {run: round(size * chance.uniform(0, 1.3)) for run, size in granted.items()}
    while sum(held.values()) > gpu.memory_bytes:  # what is not there nobody holds
        held[chance.choice(list(held))] //= 2
    reading = GpuReading(
        "GPU-0", 0, "H100", gpu.memory_bytes, sum(held.values()),
        processes=tuple(GpuProcess(n, size, run) for n, (run, size) in enumerate(held.items())),
    )  # fmt: skip
    gone = over_grants(gpu, reading, granted)
    assert all(held[run] > granted[run] for run in gone)
    free = gpu.memory_bytes - sum(held[run] for run in held.keys() - gone.keys())
    owed = sum(max(granted[run] - held[run], 0) for run in held.keys() - gone.keys())
    # Whoever is left can have all that was granted, or all but a little that is not wanted yet.
    above = sum(max(held[run] - granted[run], 0) for run in held.keys() - gone.keys())
    assert owed <= free or (owed - free <= above <= 0.05 * gpu.memory_bytes <= free)
