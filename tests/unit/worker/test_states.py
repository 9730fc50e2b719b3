"""What the worker and the flows write into a run's state."""

from datetime import UTC, datetime, timedelta

import pytest

from headway.model.run import Exit, ExitKind
from headway.node.janitor import Mending
from headway.policy.reconcile import Action
from headway.worker.states import ended, mended, scheduled

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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
    assert mended(Mending("r", Action.SET_FINAL, exit_), NOON).name == name


def test_what_the_janitor_leaves_is_written() -> None:
    again = mended(Mending("r", Action.RESCHEDULE, None), NOON)
    assert (again.name, again.is_scheduled()) == ("AwaitingRetry", True)
    assert again.state_details.scheduled_time == NOON + timedelta(seconds=2)
    assert mended(Mending("r", Action.SET_RUNNING, None), NOON).is_running()
    assert mended(Mending("r", Action.SET_CANCELLED, None), NOON).is_cancelled()
    assert mended(Mending("r", Action.SET_FINAL, None), NOON).is_cancelled()


def test_a_run_that_waits_may_be_started_when_it_is_due() -> None:
    due = NOON + timedelta(hours=1)
    state = scheduled("AwaitingHeadroom", "needs 2 CPUs", NOON, due)
    assert (state.name, state.state_details.scheduled_time) == ("AwaitingHeadroom", due)
