"""What submit says about a job that this site cannot run."""

import pytest

from headway.model.node import Capacity, Gpu, Node, Reserve
from headway.submit import limit
from headway.units import GIB

SMALL = Node("h1", "cpu", Capacity(4, 8 * GIB), Reserve(0.5, GIB))
LARGE = Node(
    "h2",
    "gpu",
    Capacity(16, 64 * GIB, (Gpu("a", 0, "V100", 16 * GIB), Gpu("b", 1, "A100", 80 * GIB))),
    Reserve(1.0, 4 * GIB),
)


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        (
            "resources.gpu_memory",
            "give a size between 6.0 MiB and 80.0 GiB (the largest GPU of pool gpu)",
        ),
        (
            "resources.host_memory",
            "give a size between 6.0 MiB and 60.0 GiB (the largest node, h2), or auto",
        ),
        ("resources.cpus", "give a number between 0.01 and 15 (the largest node, h2)"),
        ("resources.gpus", ""),
        ("name", ""),
    ],
)
def test_the_limit_is_the_largest_nodes(field, allowed):
    assert limit(field, [SMALL, LARGE]) == allowed
    assert limit(field, []) == ""


def test_a_site_without_gpus_has_no_limit_for_their_memory():
    assert limit("resources.gpu_memory", [SMALL]) == ""
