"""What the worker and the flows write into a run's state."""

from datetime import UTC, datetime, timedelta

import pytest
from prefect.states import Pending, Suspended

from headway.ledger.records import RunRecord
from headway.model.prefect_view import PrefectView
from headway.model.run import Exit, ExitKind, RunState
from headway.policy.agree import Change, end_seen
from headway.scheduler.reconciler import Mending, PrefectRun
from headway.worker.states import awaiting, ended, mended, view_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def mending(change: Change, exit_: Exit | None = None) -> Mending:
    run = RunRecord(
        run_id="r", name="r", owner="me", team="", pool="gpu", queue="", priority=0,
        preempted_for=None, preemptions=0, job={}, state=RunState.ENDED, attempt=1, resource=None,
        reason="", expected_start_at=None, node=None, runtime=None, container=None,
        submitted_at=NOON, claimed_at=None, started_at=None, ended_at=NOON, exit=exit_,
        prediction=None, demand=None, demand_override=None, measurement=None,
    )  # fmt: skip
    return Mending(run, change, PrefectRun(PrefectView.ACTIVE))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ExitKind.OK, "Completed"),
        (ExitKind.CANCELLED, "Cancelled"),
        (ExitKind.TIMED_OUT, "TimedOut"),
        (ExitKind.OUT_OF_MEMORY, "Failed"),
    ],
)
def test_a_run_ends_in_prefect_as_in_the_ledger(kind: ExitKind, name: str) -> None:
    exit_ = Exit(kind, None, "so it ended")
    state = ended(exit_)
    assert (state.name, state.message, state.is_final()) == (name, "so it ended", True)
    assert mended(mending(Change.SET_FINAL, exit_), NOON).name == name


@pytest.mark.parametrize("kind", list(ExitKind))
def test_what_is_told_is_recognised_when_it_is_seen(kind: ExitKind) -> None:
    assert view_of(ended(Exit(kind, None, "")), NOON) is end_seen(kind)


def test_what_the_reconciler_leaves_is_written() -> None:
    again = mended(mending(Change.RESCHEDULE), NOON)
    assert (again.name, again.is_scheduled()) == ("AwaitingHeadroom", True)
    assert again.state_details.scheduled_time == NOON + timedelta(seconds=2)
    assert mended(mending(Change.SET_RUNNING), NOON).is_running()
    refused = mended(mending(Change.REFUSE_SUSPENSION), NOON)
    assert refused.is_running()
    assert "not suspended: a job on several nodes" in str(refused.message)


def test_a_suspended_run_has_all_the_time_it_needs() -> None:
    told = mended(mending(Change.SET_SUSPENDED), NOON)
    assert (told.name, told.state_details.pause_reschedule) == ("Suspended", True)
    assert view_of(told, NOON) is PrefectView.SUSPENDED
    of_the_page = Suspended(timeout_seconds=300)
    assert view_of(of_the_page, NOON) is PrefectView.PAUSED


def test_a_run_that_waits_may_be_started_when_it_is_due() -> None:
    due = NOON + timedelta(hours=1)
    state = awaiting("needs 2 CPUs", NOON, due)
    assert view_of(state, NOON) is PrefectView.AWAITING
    assert (state.name, state.state_details.scheduled_time) == ("AwaitingHeadroom", due)


def test_a_run_that_is_pending_for_longer_than_a_start_takes_is_seen_to_be() -> None:
    state = Pending()
    assert view_of(state, state.timestamp + timedelta(seconds=59)) is PrefectView.ACTIVE
    assert view_of(state, state.timestamp + timedelta(seconds=61)) is PrefectView.PENDING
