"""A program starts under the limits of its grants, or not at all."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import GrantNotKept
from headway.model.lease import Basis, Demand, GpuGrant, Lease, Sharing
from headway.model.node import Capacity, Gpu, MemoryMeans, Node
from headway.run.gpu_memory import limit_gpus
from headway.runtime.port import ContainerState
from headway.telemetry.errors import TelemetryTimeout
from headway.units import GIB
from tests.ports.telemetry import FakeGpus

AT = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = Path("/groups/run-1")


class Bench:
    """An attempt whose container is about to start on a node with two GPUs."""

    def __init__(self, kept_by: MemoryMeans = MemoryMeans.DRIVER_LIMIT) -> None:
        self.gpus = FakeGpus.idle(2)
        self.gpus.takes_limits = True
        self.group: Path | None = GROUP
        self.state: ContainerState | None = ContainerState.CREATED
        self.basis = Basis.DECLARED
        self.watched: list[tuple[str, str, str, bool]] = []
        self.removed: list[str] = []
        gpus = tuple(Gpu(f"GPU-{n}", n, "H100", 80 * GIB, 0, kept_by=kept_by) for n in range(2))
        record = SimpleNamespace(node=Node("n", "gpu", Capacity(1.0, GIB, gpus)))
        nodes = SimpleNamespace(
            get=lambda _: record,
            watch_alone=lambda *told, tries_again: self.watched.append((*told, tries_again)),
        )
        runtime = SimpleNamespace(
            gpu_group=lambda _: self.group,
            inspect=lambda _: self.state and SimpleNamespace(state=self.state),
            remove=self.removed.append,
        )
        self._site = SimpleNamespace(
            ledger=SimpleNamespace(nodes=nodes), runtime=runtime, gpus=self.gpus
        )

    def limit(self, sharing: Sharing = Sharing.SHARED, *uuids: str) -> dict[tuple[str, Path], int]:
        """What is limited after the attempt was about to start."""
        demand = Demand(GIB, gpu_memory_basis=self.basis)
        attempt: Any = SimpleNamespace(
            site=self._site, container="run-1", run_id="run",
            record=SimpleNamespace(demand=demand),
        )  # fmt: skip
        grants = tuple(GpuGrant(uuid, 10 * GIB + 1, sharing) for uuid in uuids or ("GPU-1",))
        limit_gpus(attempt, Lease(1, "run", 1, "n", "t", 1, 1.0, grants, {}, AT, AT))
        return self.gpus.limits


def test_the_driver_keeps_it_to_its_grant_of_its_gpu() -> None:
    assert Bench().limit() == {("GPU-1", GROUP): 10 * GIB}


def test_a_gang_is_limited_before_it_has_a_container() -> None:
    bench = Bench()
    bench.state = None
    assert bench.limit() == {("GPU-1", GROUP): 10 * GIB}


def test_every_gpu_that_does_not_take_its_limit_is_noted_at_once() -> None:
    bench = Bench()
    bench.gpus.takes_limits = False
    with pytest.raises(GrantNotKept, match="GPU-0, GPU-1"):
        bench.limit(Sharing.SHARED, "GPU-0", "GPU-1")
    assert [(uuid, tries_again) for _, uuid, _, tries_again in bench.watched] == [
        ("GPU-0", False), ("GPU-1", False),
    ]  # fmt: skip
    assert bench.removed == ["run-1"]


def test_a_driver_that_does_not_answer_is_asked_again() -> None:
    bench = Bench()
    bench.gpus.error = TelemetryTimeout("NVML", 5.0)
    with pytest.raises(GrantNotKept):
        bench.limit()
    ((_, _, why, tries_again),) = bench.watched
    assert (tries_again, "NVML gave no reading" in why) == (True, True)


def test_no_limit_is_set_where_none_is_said() -> None:
    assert Bench(MemoryMeans.WATCH).limit() == {}
    assert Bench().limit(Sharing.WHOLE) == {}
    guessed, running = Bench(), Bench()
    guessed.basis, running.state = Basis.PRIOR, ContainerState.RUNNING
    assert (guessed.limit(), running.limit()) == ({}, {})
    assert not guessed.watched


@pytest.mark.parametrize("lacks", ["driver", "group", "gpu"])
def test_what_does_not_take_starts_nothing_and_is_noted(lacks: str) -> None:
    bench = Bench()
    if lacks == "driver":
        bench.gpus.takes_limits = False
    elif lacks == "group":
        bench.group = None
    else:
        bench.gpus.lose("GPU-1")
    with pytest.raises(GrantNotKept, match="nothing was started on GPU-1 under less than node n"):
        bench.limit()
    ((node, uuid, why, tries_again),) = bench.watched
    assert (node, uuid, why.startswith("at a run's start: GPU GPU-1 ")) == ("n", "GPU-1", True)
    assert tries_again is (lacks == "gpu")  # the others have refused
    assert bench.gpus.limits == {}
    assert bench.removed == ["run-1"]  # its next grant may be of other GPUs
