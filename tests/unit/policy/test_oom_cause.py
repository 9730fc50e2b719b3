"""Who had the memory that a run did not get."""

import pytest

from headway.policy.oom_cause import GpuShare, Holder, cause_of
from headway.units import GIB


def share(granted: int, held: int | None, *others: Holder) -> GpuShare:
    return GpuShare("GPU-a", 80 * GIB, granted * GIB, None if held is None else held * GIB, others)


STRANGER = Holder(50 * GIB, pid=4711)
GREEDY = Holder(50 * GIB, "r2", 20 * GIB)
MODEST = Holder(20 * GIB, "r3", 20 * GIB)
UNNAMED = Holder(50 * GIB)


@pytest.mark.parametrize(
    ("tried_gib", "others", "who"),
    [
        (2, (STRANGER,), "pid 4711, not of this site, held 50.0 GiB there"),
        (2, (MODEST, GREEDY), "run r2 held 50.0 GiB there, of 20.0 GiB granted"),
        (None, (UNNAMED,), "a process that the driver does not name, not of this site, held 50.0"),
    ],
)
def test_a_run_within_its_grant_was_refused_and_is_told_by_whom(tried_gib, others, who):
    tried = None if tried_gib is None else tried_gib * GIB
    found = cause_of([share(10, 9), share(40, 30, *others)], tried)
    assert found.above_bytes is None
    assert found.words.startswith("it stayed within the 40.0 GiB that it was granted of GPU-a: ")
    assert who in found.words


@pytest.mark.parametrize(
    ("held_gib", "tried_gib", "others", "above_gib", "words"),
    [
        (39, 2, (STRANGER,), 41, "it held 39.0 GiB and asked for 2.0 GiB more, and was granted 40"),
        (78, 4, (), 82, "it held 78.0 GiB and asked for 4.0 GiB more, and was granted 40.0 GiB"),
        (60, None, (MODEST,), 60, "it held 60.0 GiB, and was granted 40.0 GiB of GPU-a"),
        (None, 6, (), 40, "it asked for 6.0 GiB more, and was granted 40.0 GiB of GPU-a"),
        (None, None, (), 40, "it was granted 40.0 GiB of GPU-a"),
        (10, 2, (MODEST,), 40, "it held 10.0 GiB"),  # there was room: nobody else is to blame
    ],
)
def test_a_run_that_asked_for_more_than_its_grant_needs_more(
    held_gib, tried_gib, others, above_gib, words
):
    tried = None if tried_gib is None else tried_gib * GIB
    found = cause_of([share(40, held_gib, *others)], tried)
    assert found.above_bytes == above_gib * GIB
    assert found.words.startswith(words)


def test_nothing_is_said_of_a_run_without_gpus():
    assert cause_of([], None).words == ""
