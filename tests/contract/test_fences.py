"""What a stale attempt writes is refused, and what is written twice counts once."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from headway.errors import InvalidInput, LeaseLost
from headway.ledger import Ledger
from headway.ledger.errors import IllegalTransition
from headway.ledger.progress_snapshots import NOT_KEPT_YET
from headway.ledger.tables import AttemptRow, NodeRow
from headway.model.attempt_record import Failures, ProgressSnapshot
from headway.model.lease import Demand, Fence, Lease, Wait
from headway.model.progress import ProgressPoint
from headway.model.run import (
    RESTARTED,
    Exit,
    ExitKind,
    Measurement,
    Prediction,
    RunState,
    StepState,
)
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.model.trace import Trace
from headway.units import GIB
from tests.support.fence import fence_of, release
from tests.support.leading import admit_in_term, term_in
from tests.support.on_ledger import NOON, enqueue, granted, join

OK = Exit(ExitKind.OK, 0, "done")
LOST = Exit(ExitKind.INFRASTRUCTURE, None, "its node is lost")
DEMAND = Demand(4 * GIB)
UNUSED = SilentFailure(Silent.GPU_UNUSED, "a", "GPU-a", 0.0, 0.02, "idles")
SAID = ProgressSnapshot("a", 1, NOT_KEPT_YET, 10.0, 0.5, 10.0)


@pytest.fixture(autouse=True)
def _has_two_nodes_and_a_run(ledger: Ledger) -> None:
    join(ledger, "node-a")
    join(ledger, "node-b")
    enqueue(ledger, "a")


def admit(ledger: Ledger, node: str = "node-a") -> Lease:
    return granted(ledger, "a", DEMAND, node=node)


def begin(ledger: Ledger, fence: Fence, container: str = "c") -> None:
    ledger.runs.begin(fence, container=container, runtime="process", ttl_s=60.0)


def removed_node(ledger: Ledger) -> Fence:
    """Attempt 1 is frozen on node-a, which was taken out of the site; 2 runs on node-b."""
    frozen = admit(ledger).fence
    begin(ledger, frozen, "on-a")
    ledger.warnings.keep(frozen, [UNUSED])
    ledger.steps.started(frozen, "train")
    ledger.runs.requeue(frozen, LOST)  # as `node remove` does
    ledger.leases.release_node("node-a")
    begin(ledger, admit(ledger, "node-b").fence, "on-b")
    return frozen


def claimed_elsewhere(ledger: Ledger) -> Fence:
    """The claim of node-a was given back, and node-b has begun the same attempt."""
    before = admit(ledger).fence
    ledger.steps.started(before, "train")
    ledger.leases.give_back(before)
    begin(ledger, admit(ledger, "node-b").fence, "on-b")
    return before


def claimed_since(ledger: Ledger) -> Fence:
    """Whoever read that the run waits is late: node-b has begun it."""
    seen = fence_of(ledger, "a")
    ledger.steps.started(seen, "train")
    begin(ledger, admit(ledger, "node-b").fence, "on-b")
    return seen


TRACE = Trace("resnet-50", "v100", 1, 32, runtime_s=60.0, run_id="a-1")
WARNING = RunWarning(1, UNUSED, NOON, None, None)
WRITES: dict[str, Callable[[Ledger, Fence], object]] = {
    "finish": lambda ledger, fence: ledger.runs.finish(fence, OK, Measurement()),
    "requeue": lambda ledger, fence: ledger.runs.requeue(fence, LOST),
    "suspend": lambda ledger, fence: ledger.runs.suspend(fence, LOST),
    "begin": lambda ledger, fence: begin(ledger, fence, "on-a"),
    "predict": lambda ledger, fence: ledger.runs.predict(fence, Prediction(1.0), DEMAND),
    "give_back": lambda ledger, fence: ledger.leases.give_back(fence),
    "take_up": lambda ledger, fence: ledger.leases.take_up(fence),
    "resize": lambda ledger, fence: ledger.leases.resize(
        fence, Demand(GIB), reading=None, ttl_s=60.0
    ),
    "points": lambda ledger, fence: ledger.progress.append(fence, [ProgressPoint(1, 1)], first=0),
    "snapshot": lambda ledger, fence: ledger.progress_snapshots.keep(fence, SAID),
    "warnings": lambda ledger, fence: ledger.warnings.keep(fence, []),
    "trace": lambda ledger, fence: ledger.traces.learn(fence, TRACE),
    "stopped": lambda ledger, fence: ledger.warnings.mark_stopped(fence, WARNING),
}


def all_that_is_known(ledger: Ledger) -> tuple[object, ...]:
    return (
        ledger.runs.get("a"),
        ledger.leases.every_of_run("a"),
        ledger.leases.live(),
        ledger.attempts.of_run("a"),
        ledger.steps.of_run("a"),
        ledger.warnings.of_run("a"),
        ledger.progress.series("a", 1),
        ledger.progress_snapshots.of(["a"]),
        ledger.traces.all(),
    )


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("stale", [removed_node, claimed_elsewhere, claimed_since])
def test_a_stale_attempt_writes_nothing(
    ledger: Ledger, stale: Callable[[Ledger], Fence], write: str
) -> None:
    """Seen on two nodes: A woke up, and its late end or requeue ended what ran on B."""
    fence = stale(ledger)
    before = all_that_is_known(ledger)
    with pytest.raises(LeaseLost) as caught:
        WRITES[write](ledger, fence)
    assert (caught.value.run_id, caught.value.attempt) == ("a", fence.attempt)
    assert caught.value.cause
    ledger.leases.release(fence)
    assert not ledger.runs.preempt(fence, "a", term_in(ledger))
    assert all_that_is_known(ledger) == before
    run = ledger.runs.get("a")
    assert (run.state, run.node, run.container) == (RunState.RUNNING, "node-b", "on-b")


@pytest.mark.parametrize("write", ["points", "snapshot", "warnings", "stopped", "begin"])
def test_a_flow_whose_run_was_ended_meanwhile_writes_nothing_of_it(
    ledger: Ledger, write: str
) -> None:
    """Seen on a cancelled run: a check for silent failures came late, and its warning went on."""
    fence = admit(ledger).fence
    begin(ledger, fence)
    ledger.warnings.keep(fence, [UNUSED])
    ledger.runs.finish(fence, OK, Measurement())  # as the janitor does; the lease is still held
    before = all_that_is_known(ledger)
    with pytest.raises(LeaseLost, match="the run has ended"):
        WRITES[write](ledger, fence)
    assert all_that_is_known(ledger) == before
    (warning,) = ledger.warnings.of_run("a")
    assert warning.ended_at is not None


@pytest.mark.parametrize("stale", [claimed_elsewhere, claimed_since])
def test_a_stale_claim_tells_nothing_of_its_steps(
    ledger: Ledger, stale: Callable[[Ledger], Fence]
) -> None:
    fence = stale(ledger)
    with pytest.raises(LeaseLost):
        ledger.steps.started(fence, "clean_up")
    with pytest.raises(LeaseLost):
        ledger.steps.ended(fence, "train", StepState.FAILED)


def test_steps_go_on_when_the_lease_is_released(ledger: Ledger) -> None:
    fence = admit(ledger).fence
    begin(ledger, fence)
    ledger.runs.requeue(fence, LOST)
    ledger.steps.started(fence, "clean_up")
    ledger.leases.release(fence)
    ledger.steps.ended(fence, "clean_up", StepState.DONE)
    (step,) = ledger.steps.of_run("a")
    assert (step.attempt, step.state) == (1, StepState.DONE)


def test_what_a_removed_node_held_is_ended_or_put_back_by_its_remover_alone(
    ledger: Ledger,
) -> None:
    """Between the release of its leases and what becomes of its runs, too."""
    frozen = admit(ledger).fence
    begin(ledger, frozen)
    ledger.nodes.remove("node-a")
    for write in ("finish", "requeue", "suspend", "begin", "give_back"):
        with pytest.raises(LeaseLost, match="released"):
            WRITES[write](ledger, frozen)
    assert ledger.runs.get("a").state is RunState.RUNNING
    assert ledger.runs.requeue(ledger.runs.get("a").unleased, LOST) == LOST
    assert admit(ledger, "node-b").attempt == 2


TWICE: dict[str, Callable[[Ledger, Fence], object]] = {
    **{name: WRITES[name] for name in ("finish", "requeue", "suspend", "begin", "give_back")},
    "trace": WRITES["trace"],
    "release": lambda ledger, fence: ledger.leases.release(fence),
    "take_up": WRITES["take_up"],
}


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("write", TWICE)
def test_what_is_written_twice_counts_once(ledger: Ledger, write: str, begun: bool) -> None:
    """It was committed, but its writer was told that it had failed, and asks again."""
    fence = admit(ledger).fence
    if begun:
        begin(ledger, fence)
    first = TWICE[write](ledger, fence)
    before = all_that_is_known(ledger)
    assert TWICE[write](ledger, fence) == first
    assert all_that_is_known(ledger) == before


def test_a_run_that_its_user_ended_is_not_put_back(ledger: Ledger) -> None:
    """The janitor ends it while its flow settles what the stopped container left."""
    fence = admit(ledger).fence
    begin(ledger, fence)
    assert not ledger.leases.give_back(fence)
    cancelled = Exit(ExitKind.CANCELLED, None, "cancelled")
    assert ledger.runs.finish(fence, cancelled, Measurement()) == cancelled
    ledger.leases.release(fence)
    assert ledger.runs.requeue(fence, LOST) == cancelled
    assert ledger.runs.finish(fence, OK, Measurement()) == cancelled
    ledger.runs.suspend(fence, LOST)
    assert not ledger.leases.give_back(fence)
    run = ledger.runs.get("a")
    assert (run.state, run.attempt, run.exit) == (RunState.ENDED, 1, cancelled)


# --- another attempt, on its user's word ---


def ended_run(ledger: Ledger, exit_: Exit = OK) -> Fence:
    fence = admit(ledger).fence
    begin(ledger, fence)
    ledger.runs.finish(fence, exit_, Measurement())
    return fence


def test_a_retry_is_one_attempt_however_often_it_is_asked(ledger: Ledger) -> None:
    fence = ended_run(ledger, Exit(ExitKind.FAILED, 1, "failed"))
    ledger.runs.told("a", 1)
    assert ledger.runs.retry("a", 1)
    assert ledger.runs.retry("a", 1)
    run = ledger.runs.get("a")
    assert (run.state, run.attempt, run.exit, run.ended_at) == (RunState.WAITING, 2, None, None)
    assert run.told_end_at is None
    assert run.measurement is None
    answer = admit_in_term(ledger, "a", "node-a", DEMAND)
    assert isinstance(answer, Wait)  # the container before is not removed yet
    ledger.leases.release(fence)
    second = admit(ledger, "node-b")
    assert second.attempt == 2
    assert not ledger.runs.retry("a", 1)
    begin(ledger, second.fence)
    with pytest.raises(LeaseLost):
        ledger.runs.finish(fence, OK, Measurement())
    one, two = ledger.attempts.of_run("a")
    assert one.exit == Exit(ExitKind.FAILED, 1, "failed")
    assert (two.node, two.exit) == ("node-b", None)


def test_only_an_ended_run_that_can_wait_is_tried_again(ledger: Ledger) -> None:
    for put_back in (
        ledger.runs.retry,
        lambda *_: WRITES["requeue"](ledger, fence_of(ledger, "a")),
    ):
        with pytest.raises(IllegalTransition) as caught:
            put_back("a", 1)
        assert (caught.value.found, caught.value.wanted) == ("waiting", "waiting")
    admit_in_term(ledger, "a", "node-a", DEMAND, others=["node-b"])
    with pytest.raises(IllegalTransition):
        ledger.runs.retry("a", 1)
    (held,) = ledger.leases.untaken("a")
    rank = ledger.leases.take(held.lease_id, "a", 1, "rank")
    ledger.runs.finish(rank.fence, OK, Measurement())
    with pytest.raises(InvalidInput, match="leads it: a"):
        ledger.runs.retry("rank", 1)


def test_an_end_is_kept_until_prefect_was_told(ledger: Ledger) -> None:
    ended_run(ledger)
    assert [run.run_id for run in ledger.runs.untold(["gpu"], "", 10)] == ["a"]
    assert ledger.runs.untold(["gpu"], "a", 10) == []
    assert ledger.runs.untold(["another pool"], "", 10) == []
    assert not ledger.runs.told("a", 2)
    assert ledger.runs.told("a", 1)
    told_at = ledger.runs.get("a").told_end_at
    assert ledger.runs.told("a", 1)
    assert ledger.runs.get("a").told_end_at == told_at is not None
    assert ledger.runs.untold(["gpu"], "", 10) == []
    (found,) = ledger.runs.told_ends(["gpu"], None, 10)
    assert found.run_id == "a"
    assert ledger.runs.told_ends(["gpu"], found.ended_at, 10) == []
    assert ledger.runs.told_ends(["another pool"], None, 10) == []
    release(ledger, "a")
    ledger.runs.retry("a", 1)
    assert not ledger.runs.told("a", 1)


def test_what_a_node_cleans_up_is_told_from_what_nobody_does(ledger: Ledger) -> None:
    ended_run(ledger)
    enqueue(ledger, "b")
    ledger.runs.finish(fence_of(ledger, "b"), Exit(ExitKind.CANCELLED, None, "c"), Measurement())
    assert [run.run_id for run in ledger.runs.untold(["gpu"], "", 10)] == ["a", "b"]
    assert [run.run_id for run in ledger.runs.untold(["gpu"], "", 1)] == ["a"]
    assert ledger.leases.held(["a", "b"]) == {"a"}
    with ledger._database.transaction() as session:
        session.get_one(NodeRow, "node-a").heartbeat_at -= timedelta(minutes=2)
    assert ledger.leases.held(["a", "b"]) == set()


# --- suspended, and resumed ---


def in_line(ledger: Ledger) -> dict[str, int]:
    waiting = ledger.pools.snapshot("gpu", {}).waiting
    return {run_id: attempt for run_id, (attempt, _) in waiting.items()}


def test_a_suspended_run_waits_until_it_is_resumed(ledger: Ledger) -> None:
    fence = admit(ledger).fence
    begin(ledger, fence)
    stopped = Exit(ExitKind.PREEMPTED, 143, "suspended by its user")
    ledger.runs.suspend(fence, stopped)
    run = ledger.runs.get("a")
    assert (run.state, run.attempt, run.reason) == (RunState.WAITING, 2, stopped.message)
    assert run.suspended_at is not None
    ledger.leases.release(fence)
    assert in_line(ledger) == {}
    answer = admit_in_term(ledger, "a", "node-a", DEMAND)
    assert isinstance(answer, Wait)
    assert "suspended" in answer.reason
    assert ledger.runs.resume("a")
    assert not ledger.runs.resume("a")
    assert in_line(ledger) == {"a": 2}
    assert admit(ledger).attempt == 2


def test_a_place_that_nobody_has_taken_up_is_free_when_its_run_is_suspended(ledger: Ledger) -> None:
    lease = admit(ledger)  # its flow process is being started
    ledger.runs.suspend(lease.fence, Exit(ExitKind.PREEMPTED, None, "suspended by its user"))
    assert ledger.leases.untaken_claims(["node-a"]) == {}
    ledger.leases.release(lease.fence)
    assert ledger.leases.live() == []


def test_a_run_that_waits_is_suspended_as_the_same_attempt(ledger: Ledger) -> None:
    ledger.runs.suspend(fence_of(ledger, "a"), LOST)
    assert in_line(ledger) == {}
    assert ledger.runs.get("a").attempt == 1
    cancelled = Exit(ExitKind.CANCELLED, None, "cancelled")
    ledger.runs.finish(fence_of(ledger, "a"), cancelled, Measurement())
    assert ledger.runs.get("a").suspended_at is None


# --- how often its attempts have failed ---


def failed_so(ledger: Ledger, exit_: Exit) -> None:
    fence = admit(ledger).fence
    begin(ledger, fence)
    ledger.runs.requeue(fence, exit_)
    ledger.leases.release(fence)


def test_the_programs_failures_count_for_life_and_the_infrastructures_for_an_hour(
    ledger: Ledger,
) -> None:
    assert ledger.attempts.failures(["a", "nobody"]) == {}
    failed_so(ledger, LOST)
    failed_so(ledger, Exit(ExitKind.PREEMPTED, 143, "for another run"))
    failed_so(ledger, Exit(ExitKind.OUT_OF_MEMORY, 137, "killed"))
    failed_so(ledger, Exit(ExitKind.GPU_OUT_OF_MEMORY, 1, "killed"))
    failed_so(ledger, Exit(ExitKind.PREEMPTED, 143, RESTARTED))
    assert ledger.attempts.failures(["a"]) == {"a": Failures(2, 1, 1)}
    with ledger._database.transaction() as session:
        for attempt in range(1, 6):
            row = session.get_one(AttemptRow, ("a", attempt))
            assert row.ended_at is not None
            row.ended_at -= timedelta(minutes=61)
    assert ledger.attempts.failures(["a"]) == {"a": Failures(program=2, infrastructure=0)}
    failed_so(ledger, LOST)
    assert ledger.attempts.failures(["a"]) == {"a": Failures(program=2, infrastructure=1)}
