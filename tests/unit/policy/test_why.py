"""What is tried out for a waiting run: smaller demands, the smallest change first."""

import pytest

from headway.model.lease import Demand
from headway.policy.fit import Headroom
from headway.policy.room import Room
from headway.policy.why import fewer_gpus, is_earlier, smaller_demands
from headway.units import GIB

DEMAND = Demand(12 * GIB, 4.0, gpus=4, gpu_memory_bytes=16 * GIB)


def node(host_free: float, load: float, *gpus_free: float) -> Headroom:
    host = Room(64 * GIB, 8.0, int(host_free * GIB), load, is_gpu=False)
    return Headroom("a", host, [Room(24 * GIB, 1.0, int(free * GIB)) for free in gpus_free])


def test_what_some_node_has_left_is_tried_first_and_then_parts() -> None:
    host, gpu, cpus = smaller_demands(DEMAND, [node(9.51, 6.7, 10, 30), node(40, 8.0)])
    assert [each.value / GIB for each in host] == [9.5, 9, 6, 3]
    assert [each.value / GIB for each in gpu] == [12, 10, 8, 4]
    assert [each.value for each in cpus] == [3, 2, 1]
    assert host[0].text == "9.5 GiB of host memory instead of 12.0 GiB"
    assert host[0].demand == Demand(int(9.5 * GIB), 4.0, gpus=4, gpu_memory_bytes=16 * GIB)
    assert [each.field for each in (host[0], gpu[0], cpus[0])] == [
        "resources.host_memory", "resources.gpu_memory", "resources.cpus"
    ]  # fmt: skip


def test_a_run_without_gpus_is_not_advised_to_take_less_of_them() -> None:
    _, gpu, _ = smaller_demands(Demand(12 * GIB, 4.0), [node(9.5, 6.7, 10)])
    assert gpu == []
    assert fewer_gpus(0) == fewer_gpus(1) == []
    assert fewer_gpus(8) == [4, 2, 1]
    assert fewer_gpus(3) == [1]


@pytest.mark.parametrize(
    ("waits", "than", "earlier"),
    [
        ([0.0] * 20, [61.0] * 20, True),
        ([0.0] * 20, [59.0] * 20, False),
        ([3000.0] * 20, [3600.0] * 20, False),
        ([2800.0] * 20, [3600.0] * 20, True),
        # Twice in twenty times it may be no earlier, or later; three times is too often.
        ([*[0.0] * 18, 600.0, 700.0], [600.0] * 20, True),
        ([*[0.0] * 17, 600.0, 600.0, 600.0], [600.0] * 20, False),
        # One of them was played more often.
        ([0.0] * 5, [3600.0] * 20, True),
    ],
)
def test_a_change_counts_where_it_nearly_always_helps_and_is_worth_it(
    waits: list[float], than: list[float], earlier: bool
) -> None:
    assert is_earlier(waits, than) is earlier
