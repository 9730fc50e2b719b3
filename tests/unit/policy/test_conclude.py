"""What follows the end of an attempt."""

from dataclasses import replace

import pytest

from headway.model.attempt_record import Failures
from headway.model.lease import Basis, Demand, Sharing
from headway.model.node import Capacity, Gpu, Node, NodeSpace
from headway.model.run import SICK_GPU, Exit, ExitKind
from headway.policy.conclude import (
    Again,
    AttemptEnd,
    Ended,
    Had,
    conclude,
    on_sick_gpu,
    preempted,
    restarted,
)
from headway.policy.demand import raised
from headway.units import GIB

T4 = Gpu("GPU-0", 0, "NVIDIA T4", 16 * GIB)
NODE = Node("here", "gpu", Capacity(8.0, 64 * GIB, (T4,)))
SPACES = (NodeSpace(NODE, 60 * GIB),)
DEMAND = Demand(
    host_memory_bytes=20 * GIB, cpus=1.0, gpus=1, gpu_memory_bytes=4 * GIB,
    host_memory_basis=Basis.DECLARED, gpu_memory_basis=Basis.DECLARED,
)  # fmt: skip
HAD = Had(DEMAND, None, gpu_bytes=4 * GIB, gpu_above_bytes=5 * GIB, spaces=SPACES, nodes=1)


def end(kind: ExitKind, had: Had | None = HAD, **more: object) -> AttemptEnd:
    known = AttemptEnd(Exit(kind, 1, "said"), retries=1, had=had)
    return replace(known, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind",
    [ExitKind.OK, ExitKind.FAILED, ExitKind.TIMED_OUT, ExitKind.CANCELLED, ExitKind.REFUSED],
)
def test_an_end_of_its_own_is_the_end(kind: ExitKind) -> None:
    assert conclude(end(kind)) == Ended(Exit(kind, 1, "said"))


def test_what_the_site_ended_is_tried_again_as_often_as_the_job_says() -> None:
    again = conclude(end(ExitKind.INFRASTRUCTURE, None, override={"host_memory_bytes": 3}))
    assert again == Again(
        Exit(ExitKind.INFRASTRUCTURE, 1, "said; it is tried again"), {"host_memory_bytes": 3}
    )
    last = end(ExitKind.INFRASTRUCTURE, None, before=Failures(infrastructure=1))
    assert isinstance(conclude(last), Ended)
    # An hour later that failure is forgotten; the program's are not.
    assert isinstance(conclude(replace(last, before=Failures(program=1))), Again)
    again = end(ExitKind.OUT_OF_MEMORY, before=Failures(infrastructure=9))
    assert isinstance(conclude(again), Again)
    assert isinstance(conclude(replace(again, before=Failures(program=1))), Ended)


def test_a_preempted_run_always_goes_on_and_says_nothing_more() -> None:
    stopped = preempted(Exit(ExitKind.FAILED, 143, "said"), "other")
    assert (stopped.kind, stopped.code) == (ExitKind.PREEMPTED, 143)
    assert "stopped for run other of a higher priority" in stopped.message
    after = end(ExitKind.OK, exit_=stopped, before=Failures(9, 9), retries=0, override={"a": 1})
    assert conclude(after) == Again(stopped, {"a": 1})


def test_a_restart_of_its_machine_costs_no_retry_unless_it_comes_again_and_again() -> None:
    lost = Exit(ExitKind.FAILED, 255, "said")
    again = restarted(lost, Failures(9, 9, 2), alone=True)
    assert conclude(end(ExitKind.OK, exit_=again, retries=0)) == Again(again, {})
    assert (again.kind, again.code) == (ExitKind.PREEMPTED, 255)
    brings_it_down = restarted(lost, Failures(restarts=3), alone=True)
    assert isinstance(conclude(end(ExitKind.OK, exit_=brings_it_down, retries=0)), Ended)
    assert restarted(lost, Failures(), alone=False).kind is ExitKind.INFRASTRUCTURE


def test_a_sick_gpu_costs_no_retry_unless_it_comes_again_and_again() -> None:
    failed = Exit(ExitKind.FAILED, 1, "said")
    spared = on_sick_gpu(failed, "GPU-0: Xid 48", Failures(9, 9, 2), alone=True)
    assert conclude(end(ExitKind.OK, exit_=spared, retries=0)) == Again(spared, {})
    assert spared.message.startswith(f"{SICK_GPU} (GPU-0: Xid 48)")
    makes_sick = on_sick_gpu(failed, "x", Failures(restarts=3), alone=True)
    assert isinstance(conclude(end(ExitKind.OK, exit_=makes_sick, retries=0)), Ended)
    assert on_sick_gpu(failed, "x", Failures(), alone=False).kind is ExitKind.INFRASTRUCTURE


def test_more_host_memory_until_there_is_no_more() -> None:
    again = conclude(end(ExitKind.OUT_OF_MEMORY, override={"gpu_memory_bytes": 7}))
    assert isinstance(again, Again)
    assert again.override == {"gpu_memory_bytes": 7, "host_memory_bytes": 30 * GIB}
    assert again.exit_.message == "said; it is tried again with 30.0 GiB"
    large = replace(DEMAND, host_memory_bytes=50 * GIB)
    again = conclude(end(ExitKind.OUT_OF_MEMORY, replace(HAD, demand=large)))
    assert again.exit_.message.endswith("with 60.0 GiB, all that a node could give")
    largest = replace(DEMAND, host_memory_bytes=60 * GIB)
    ended = conclude(end(ExitKind.OUT_OF_MEMORY, replace(HAD, demand=largest)))
    assert ended == Ended(
        Exit(ExitKind.OUT_OF_MEMORY, 1, "said; it had all the host memory that a node could give")
    )


def test_memory_that_no_job_named_grows_until_it_is_enough_whatever_the_retries() -> None:
    """2, 4, 8, 16 GiB: three kills of a small guess must not end a job of 10 GiB."""
    had = replace(HAD, demand=Demand(2 * GIB), host_peak_bytes=2 * GIB)
    again = conclude(end(ExitKind.OUT_OF_MEMORY, had, before=Failures(program=2)))
    assert isinstance(again, Again)
    assert again.override["host_memory_bytes"] == 4 * GIB
    had = replace(had, demand=raised(had.demand, again.override), host_peak_bytes=4 * GIB)
    override = again.override
    again = conclude(
        end(ExitKind.OUT_OF_MEMORY, had, before=Failures(program=9), override=override)
    )
    assert isinstance(again, Again)
    assert again.override["host_memory_bytes"] == 8 * GIB
    assert isinstance(conclude(end(ExitKind.OUT_OF_MEMORY, had, retries=0)), Ended)
    learned = replace(had, demand=Demand(2 * GIB, host_memory_basis=Basis.PREDICTED))
    again = conclude(end(ExitKind.OUT_OF_MEMORY, learned, before=Failures(program=2)))
    assert isinstance(again, Again)
    named = replace(had, demand=Demand(2 * GIB, host_memory_basis=Basis.DECLARED))
    over = conclude(end(ExitKind.OUT_OF_MEMORY, named, before=Failures(program=2)))
    assert isinstance(over, Ended)


def test_more_gpu_memory_then_a_whole_gpu_then_no_more() -> None:
    again = conclude(end(ExitKind.GPU_OUT_OF_MEMORY))
    assert isinstance(again, Again)
    assert again.override == {"gpu_memory_bytes": round(7.5 * GIB), "whole_gpus": False}
    assert again.exit_.message == "said; it is tried again with 7.5 GiB"
    again = conclude(end(ExitKind.GPU_OUT_OF_MEMORY, replace(HAD, gpu_bytes=12 * GIB)))
    assert again.exit_.message.startswith("said; it is tried again with a whole GPU of at least ")
    whole = replace(DEMAND, gpu_memory_bytes=16 * GIB, sharing=Sharing.WHOLE)
    ended = conclude(end(ExitKind.GPU_OUT_OF_MEMORY, replace(HAD, demand=whole)))
    assert isinstance(ended, Ended)
    assert "it had the whole of the largest GPU there is" in ended.exit_.message


def test_what_others_took_is_no_reason_for_more() -> None:
    again = conclude(end(ExitKind.GPU_OUT_OF_MEMORY, replace(HAD, gpu_above_bytes=None)))
    assert again == Again(
        Exit(ExitKind.GPU_OUT_OF_MEMORY, 1, "said; it is tried again where there is room"), {}
    )
