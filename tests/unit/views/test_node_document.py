"""A node's GPUs, as machines and people read of them."""

from datetime import UTC, datetime

from headway.estimate.physics import shipped
from headway.ledger.records import NodeRecord
from headway.model.node import Capacity, Gpu, GpuReading, HostReading, Node, NodeReading
from headway.units import GIB
from headway.views.node_document import node_shown
from headway.views.tables import gpus_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def shown(used_bytes: int, driver_bytes: int) -> dict[str, object]:
    gpu = Gpu("GPU-0", 0, "NVIDIA H100", 80 * GIB)
    seen = GpuReading("GPU-0", 0, gpu.name, 80 * GIB, used_bytes, driver_bytes=driver_bytes)
    reading = NodeReading(NOON, HostReading(8 * GIB, GIB, 0.0, GIB), (seen,))
    node = Node("a", "gpu", Capacity(8.0, 8 * GIB, (gpu,)))
    view = node_shown(NodeRecord(node, "boot", "token", NOON, reading), NOON, (), {}, shipped())
    (found,) = view["gpus"]
    return dict(found)


def test_what_the_driver_keeps_is_not_in_use_by_others() -> None:
    found = shown(used_bytes=3 * GIB, driver_bytes=GIB)
    assert (found["used_bytes"], found["runs_used_bytes"]) == (2 * GIB, 0)
    assert shown(used_bytes=GIB, driver_bytes=GIB)["used_bytes"] == 0


def test_gpus_that_are_alike_are_said_once() -> None:
    one = shown(used_bytes=0, driver_bytes=0)
    eight = [{**one, "index": at} for at in range(8)]
    assert gpus_text(eight) == "8 × NVIDIA H100 0 B of 80.0 GiB"
    eight[3] |= {"promised_bytes": 10 * GIB}
    eight[5] |= {"lost": "off the bus"}
    assert gpus_text(eight) == (
        "6 × NVIDIA H100 0 B of 80.0 GiB, NVIDIA H100 10.0 GiB of 80.0 GiB, gpu5 lost: off the bus"
    )
    assert gpus_text([]) == ""
