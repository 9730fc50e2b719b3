"""A node's GPUs, as machines and people read of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headway.estimate.physics import shipped
from headway.ledger.records import NodeRecord
from headway.model.node import (
    Capacity,
    Gpu,
    GpuProcess,
    GpuReading,
    HostReading,
    MemoryMeans,
    Node,
    NodeReading,
)
from headway.units import GIB
from headway.views.node_document import node_shown
from headway.views.tables import gpus_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def shown(
    used_bytes: int,
    driver_bytes: int,
    processes: tuple[GpuProcess, ...] = (),
    kept_by: MemoryMeans = MemoryMeans.WATCH,
) -> dict[str, object]:
    gpu = Gpu("GPU-0", 0, "NVIDIA H100", 80 * GIB, kept_by=kept_by, kept_why="the best")
    seen = GpuReading("GPU-0", 0, gpu.name, 80 * GIB, used_bytes, driver_bytes=driver_bytes)
    seen = replace(seen, processes=processes)
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


@pytest.mark.parametrize(
    ("kept_by", "said"),
    [
        (MemoryMeans.DRIVER_LIMIT, ", kept by the driver"),
        (MemoryMeans.WATCH, ""),
        (MemoryMeans.MIG, ", one run a slice"),
        (MemoryMeans.WHOLE, ", one run at a time"),
    ],
)
def test_by_what_runs_are_kept_to_their_memory_is_told(kept_by: MemoryMeans, said: str) -> None:
    found = shown(0, 0, (), kept_by)
    assert (found["memory_kept_by"], found["memory_kept_why"]) == (kept_by.value, "the best")
    assert gpus_text([found]) == f"NVIDIA H100 0 B of 80.0 GiB{said}"
    blind = shown(0, 0, (GpuProcess(1, None),), kept_by)["memory_kept_by"]
    assert blind == ("whole" if kept_by is MemoryMeans.WATCH else kept_by.value)


def test_who_is_on_a_gpu_is_told_runs_and_strangers() -> None:
    whose = GpuProcess(4711, 20 * GIB, user="alice", command="ollama serve", since=NOON)
    found = shown(0, 0, (whose, GpuProcess(17, GIB, "run"), GpuProcess(18, None)))
    assert found["strangers"] == [
        {
            "pid": 4711,
            "user": "alice",
            "command": "ollama serve",
            "memory_bytes": 20 * GIB,
            "since": NOON.isoformat(),
        },
        {"pid": 18, "user": "", "command": "", "memory_bytes": None, "since": None},
    ]
    runs = [{"run_id": "0123456789", "granted_bytes": GIB, "since": NOON.isoformat()}]
    assert gpus_text([{**found, "runs": runs}]) == (
        "NVIDIA H100 0 B of 80.0 GiB, one run at a time (gpu0: run 01234567, alice's ollama "
        "serve, pid 4711, "
        "20.0 GiB, since 2026-01-01T12:00, pid 18)"
    )
