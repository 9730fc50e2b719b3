"""What is done about a run and its job: both sides in every state, and what a limit becomes."""

from itertools import product

import pytest

from headway.engine.decide import Do, Side, about, decide, end_of, is_passing, more_time_s
from headway.engine.judge import BY_USER, FORGOTTEN, NEVER_BEGAN
from headway.engine.port import Job, Phase, Reason
from headway.model.run import Exit, ExitKind


def job(phase: Phase, **changes: object) -> Job:
    return Job("k", 0, "7", phase, **changes)


def ended(kind: ExitKind = ExitKind.OK, message: str = "", **changes: object) -> Job:
    return job(Phase.ENDED, end=Exit(kind, None, message), **changes)


@pytest.mark.parametrize(
    ("side", "its", "done"),
    [
        (Side.WAITS, None, (Do.SUBMIT,)),
        (Side.WAITS, job(Phase.WAITING), (Do.TELL,)),
        (Side.WAITS, job(Phase.HELD), (Do.TELL,)),
        (Side.WAITS, job(Phase.UNKNOWN), (Do.TELL,)),
        (Side.WAITS, job(Phase.RUNNING), (Do.BEGIN, Do.FOLLOW)),
        (Side.WAITS, job(Phase.ENDING), (Do.BEGIN, Do.FOLLOW)),
        # It ran between two questions.
        (Side.WAITS, ended(nodes="n1"), (Do.BEGIN, Do.CONCLUDE, Do.FORGET)),
        # Somebody cancelled it in the cluster's queue: that is its end.
        (Side.WAITS, ended(ExitKind.CANCELLED, "somebody did"), (Do.CONCLUDE, Do.FORGET)),
        # It was stopped for a suspension that is over, or the cluster lost it.
        (Side.WAITS, ended(ExitKind.CANCELLED, BY_USER), (Do.FORGET,)),
        (Side.WAITS, ended(ExitKind.CANCELLED, BY_USER, nodes="n1"), (Do.FORGET,)),
        (Side.WAITS, job(Phase.ENDED, nodes="n1", is_cancelled=True), (Do.FORGET,)),
        (Side.WAITS, job(Phase.WAITING, is_cancelled=True), (Do.STOP, Do.TELL)),
        (Side.WAITS, job(Phase.RUNNING, is_cancelled=True), (Do.STOP, Do.TELL)),
        (Side.WAITS, job(Phase.ENDED, reason=NEVER_BEGAN), (Do.FORGET,)),
        (Side.UNDER_WAY, None, (Do.CONCLUDE, Do.FORGET)),
        (Side.UNDER_WAY, job(Phase.WAITING), (Do.WAIT_AGAIN, Do.TELL)),
        (Side.UNDER_WAY, job(Phase.HELD), (Do.WAIT_AGAIN, Do.TELL)),
        (Side.UNDER_WAY, job(Phase.RUNNING), (Do.FOLLOW,)),
        (Side.UNDER_WAY, job(Phase.SUSPENDED), (Do.FOLLOW,)),
        (Side.UNDER_WAY, job(Phase.UNKNOWN), (Do.FOLLOW,)),
        (Side.UNDER_WAY, ended(), (Do.CONCLUDE, Do.FORGET)),
        (Side.OVER, None, ()),
        (Side.OVER, job(Phase.WAITING), (Do.STOP,)),
        (Side.OVER, job(Phase.RUNNING), (Do.STOP,)),
        (Side.OVER, ended(), (Do.FORGET,)),
        (Side.BARRED, job(Phase.WAITING), (Do.STOP,)),
        (Side.BARRED, ended(), (Do.FORGET,)),
    ],
)
def test_what_is_done(side: Side, its: Job | None, done: tuple[Do, ...]) -> None:
    assert decide(side, its) == done


def test_nothing_is_undecided_and_no_job_is_let_go_of_that_lives() -> None:
    for side, phase in product(Side, Phase):
        done = decide(side, job(phase))
        assert (Do.FORGET in done) == (phase is Phase.ENDED)
        assert Do.SUBMIT not in done or phase is Phase.ENDED


def test_an_end_that_nobody_knows_is_none_of_the_program() -> None:
    assert end_of(ended(ExitKind.FAILED, "x")) == Exit(ExitKind.FAILED, None, "x")
    lost = end_of(job(Phase.ENDED, reason=FORGOTTEN))
    assert (lost.kind, lost.message) == (ExitKind.INFRASTRUCTURE, FORGOTTEN.sentence)
    assert end_of(None).kind is ExitKind.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("had_s", "users_s", "pool_s", "next_s"),
    [
        (60.0, None, None, 120.0),
        (60.0, None, 100.0, 100.0),
        (60.0, 90.0, 100.0, 90.0),
        (60.0, 60.0, None, None),  # as its user has said
        (60.0, None, 60.0, None),  # all that the partition gives
        (None, None, None, None),
    ],
)
def test_more_time_is_bounded(had_s, users_s, pool_s, next_s) -> None:
    assert more_time_s(had_s, users_s, pool_s) == next_s


def test_what_is_told_has_the_reason_and_the_step() -> None:
    held = job(Phase.HELD, reason=Reason("JobHeldUser", "its user holds it", "release it"))
    assert about(held) == "held: its user holds it; release it"
    assert about(job(Phase.RUNNING, nodes="n1")) == "running on n1"


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        (
            "Batch job submission failed: Job violates accounting/QOS policy (job submit limit)",
            True,
        ),
        ("QOSMaxSubmitJobPerUserLimit Batch job submission failed: Job violates policy", True),
        ("QOSMaxWallDurationPerJobLimit Job violates accounting/QOS policy (submit limit)", False),
        ("Requested time limit is invalid (missing or exceeds some limit)", False),
        ("Invalid account or account/partition combination specified", False),
        ("Requested node configuration is not available", False),
    ],
)
def test_a_refusal_that_passes_is_told_from_one_that_stays(said: str, passes: bool) -> None:
    assert is_passing(said) == passes
