"""Which engines there are, and queues as somebody says them."""

import pytest

from headway.engine.kinds import TOLD, takes, told_queue
from headway.errors import InvalidInput
from headway.model.engine import ENGINES, GpuKind
from headway.units import GIB, HOUR_S


def test_every_engine_of_the_site_is_known_here() -> None:
    assert {name for name in ENGINES if takes(name) is not None} == {"slurm", "ray", *TOLD}


def test_a_queue_is_said_in_one_line() -> None:
    pool = told_queue("batch nodes=2 cpus=64 memory=256GiB gpus=4 max_time=48h")
    assert (pool.name, len(pool.nodes), pool.max_nodes) == ("batch", 2, 1)
    assert pool.max_time_s == 48 * HOUR_S
    (node, _) = pool.nodes
    assert (node.cpus, node.host_memory_bytes, node.gpus) == (64, 256 * GIB, (GpuKind("", 4),))


@pytest.mark.parametrize(
    "text",
    ["", "batch", "batch nodes=2 cpus=x memory=1GiB", "batch nodes=0 cpus=1 memory=1GiB",
     "batch nodes=1 cpus=1 memory=1GiB disk=3", "batch nodes=1 cpus=1 memory=1GiB gpus=-1"],
)  # fmt: skip
def test_what_is_said_otherwise_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="nodes=8 cpus=64"):
        told_queue(text)
