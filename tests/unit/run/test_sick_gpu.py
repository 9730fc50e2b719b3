"""Which sick GPUs end an attempt that runs on them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headway.model.gpu_health import GpuDrain, Sickness
from headway.model.run import ExitKind
from headway.run.upkeep import AttemptUpkeep
from headway.this_node import sick_gpus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def upkeep(*why: Sickness) -> Any:
    """As much of an `AttemptUpkeep` as is asked, on a GPU that was drained for *why*."""
    drain = GpuDrain(NOON, {kind: f"it has {kind}" for kind in why})
    nodes = SimpleNamespace(gpu_drains=lambda _: {"GPU-0": drain})
    return SimpleNamespace(
        _site=SimpleNamespace(
            ledger=SimpleNamespace(nodes=nodes), settings=SimpleNamespace(node="n")
        ),
        _lease=SimpleNamespace(gpus=[SimpleNamespace(uuid="GPU-0")], node="n"),
        _attempt=SimpleNamespace(meeting=None),
        _disk=SimpleNamespace(measure=lambda _: (), why_uncounted=""),
        _why_too_much=lambda _: "",
        _idle=SimpleNamespace(verdict=lambda: None),
        _health_due=SimpleNamespace(is_due=lambda: True),
        _grants=SimpleNamespace(shared=set(), verdict=lambda _: ""),
    )


@pytest.mark.parametrize(
    ("why", "ends"),
    [
        ([Sickness.HOT], False),
        ([Sickness.LINK_WIDTH, Sickness.ECC], False),
        ([Sickness.XID_CONTAINED], False),
        ([Sickness.XID], True),
        ([Sickness.HOT, Sickness.ROW_REMAP], True),
        ([Sickness.LOST], True),
    ],
)
def test_a_run_is_stopped_only_for_what_it_cannot_get_over(why: list[Sickness], ends: bool) -> None:
    status: Any = SimpleNamespace(pids=())
    held = upkeep(*why)
    assert (AttemptUpkeep.cancellation(held, status) is not None) == ends
    # One that fails by itself there was on a sick GPU all the same.
    assert f"it has {why[0]}" in sick_gpus(held._site, held._lease)


def test_whoever_takes_what_others_were_granted_ends_as_out_of_gpu_memory() -> None:
    """So it is tried again with more."""
    status: Any = SimpleNamespace(pids=())
    held = upkeep(Sickness.HOT)
    record = SimpleNamespace(node=SimpleNamespace(gpu_drains={}))
    held._site.ledger.nodes.get = lambda _: record
    held._grants = SimpleNamespace(shared={"GPU-0"}, verdict=lambda _: "it holds 58 GiB")
    found = AttemptUpkeep.cancellation(held, status)
    assert found is not None
    assert (found.kind, found.message) == (
        ExitKind.GPU_OUT_OF_MEMORY, "ended as over its grant: it holds 58 GiB",
    )  # fmt: skip
