"""Which CPUs runs on GPUs keep to, on a node of two sockets with 8 CPUs and two GPUs each."""

from datetime import UTC, datetime

import pytest

from headway.model.lease import GpuGrant, Lease
from headway.policy.near_cpus import ANY, near_cpus

AT = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = frozenset(range(8)), frozenset(range(8, 16))
NEAR = {"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND}


def lease(number: int, gpus: str, cpus: float) -> Lease:
    grants = tuple(GpuGrant(uuid, 1) for uuid in gpus)
    return Lease(number, f"r{number}", 1, "n", "t", 1, cpus, grants, {}, AT, AT)


def asked(*leases: Lease, near: dict[str, frozenset[int]] = NEAR) -> frozenset[int]:
    return near_cpus(leases[-1], leases, near, FIRST | SECOND)


@pytest.mark.parametrize(
    ("gpus", "cpus", "expected"),
    [
        ("a", 4, FIRST),
        ("d", 8, SECOND),
        ("ac", 4, ANY),
        ("a", 9, ANY),
        ("", 1, ANY),
        ("ax", 1, ANY),
    ],
)
def test_it_keeps_to_those_near_its_gpus_where_they_are_enough(
    gpus: str, cpus: float, expected: frozenset[int]
) -> None:
    assert asked(lease(1, gpus, cpus)) == expected


def test_a_node_whose_cpus_are_all_as_near_binds_nothing() -> None:
    assert asked(lease(1, "a", 4), near={"a": FIRST | SECOND}) == ANY


def test_nobody_gets_fewer_than_he_was_granted_for_those_that_came_before() -> None:
    """Who does not fit beside them has any, and takes nothing of what is kept to."""
    before = [lease(1, "a", 5), lease(2, "c", 8), lease(3, "", 3)]
    assert asked(*before, lease(4, "b", 3)) == FIRST
    assert asked(*before, lease(4, "b", 4)) == ANY
    assert asked(*before, lease(4, "b", 4), lease(5, "b", 3)) == FIRST
    # In whatever order they are read.
    assert (
        near_cpus(before[0], [lease(4, "b", 8), *reversed(before)], NEAR, FIRST | SECOND) == FIRST
    )


def test_it_keeps_to_no_cpu_that_the_site_may_not_use() -> None:
    usable = frozenset(range(2, 12))
    one = lease(1, "a", 6)
    assert near_cpus(one, [one], NEAR, usable) == FIRST & usable
