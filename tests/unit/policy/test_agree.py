"""Whatever ledger and Prefect say of a run, there is one answer, and in the end they agree."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from prefect.client.schemas.objects import StateType

from headway.model.prefect_view import AWAITING_HEADROOM, PrefectView
from headway.model.run import GRANTED, ExitKind, RunState
from headway.policy.agree import ON_PREFECT, Change, Said, agree, end_seen

WAITING, CLAIMED = RunState.WAITING, RunState.CLAIMED
RUNNING, ENDED = RunState.RUNNING, RunState.ENDED
AGAIN, FINAL = Change.RESCHEDULE, Change.SET_FINAL
CANCELS = (PrefectView.CANCELLING, PrefectView.CANCELLED, PrefectView.MISSING)
BOTH = (False, True)

EVERYTHING = [
    *(
        Said(state, view, held, False, over, rank, leads, suspended=suspended)
        for state, view, held, over, rank, leads, suspended in product(
            (WAITING, CLAIMED, RUNNING), PrefectView, BOTH, BOTH, BOTH, BOTH, BOTH
        )
        if not (suspended and state is not WAITING) and not (rank and leads)
    ),
    *(
        Said(ENDED, view, held, young, False, rank, False, kind, told)
        for view, held, young, rank, kind, told in product(
            PrefectView, BOTH, BOTH, BOTH, ExitKind, BOTH
        )
    ),
]


def test_prefect_is_made_to_say_only_what_the_ledger_says_by_then() -> None:
    for found in EVERYTHING:
        now = found
        for change in agree(found):
            if change in ON_PREFECT:
                assert _ledger_says(change, now), (found, change)
            now = after(change, now)


def _ledger_says(change: Change, now: Said) -> bool:
    match change:
        case Change.SET_FINAL:
            return now.state is ENDED
        case Change.SET_SUSPENDED:
            return now.state is WAITING and now.suspended
        case Change.RESCHEDULE:
            return now.state is WAITING and not now.suspended
        case Change.SET_PENDING:
            return now.state is CLAIMED
        case _:
            return now.state in GRANTED


def test_nothing_is_concluded_while_prefect_is_silent() -> None:
    for found in EVERYTHING:
        if found.prefect is PrefectView.UNKNOWN:
            assert agree(found) == (), found


def test_a_run_that_has_ended_begins_again_only_when_its_user_says_so() -> None:
    for found in EVERYTHING:
        wanted = found.told and found.prefect is PrefectView.SCHEDULED and not found.is_rank
        wanted &= found.state is ENDED and not found.held
        assert (Change.RETRY in agree(found)) == wanted, found
        if found.state is ENDED:
            assert set(agree(found)) <= {Change.NOTE_TOLD, Change.RETRY, FINAL}, found


def test_the_ledger_hears_of_every_cancel() -> None:
    for found in EVERYTHING:
        if found.prefect in CANCELS and found.state is not ENDED:
            assert agree(found) == (Change.END_CANCELLED,), found


def after(change: Change, now: Said) -> Said:
    """What is said once *change* was made."""
    if change in {Change.END_CANCELLED, Change.END_BROKEN}:
        kind = ExitKind.CANCELLED if change is Change.END_CANCELLED else ExitKind.INFRASTRUCTURE
        return replace(now, state=ENDED, exit_kind=kind, told=False, suspended=False)
    changes: dict[Change, dict[str, Any]] = {
        Change.RETRY: {"state": WAITING, "told": False, "young": False},
        Change.SUSPEND: {"state": WAITING, "suspended": True},
        Change.RESUME: {"suspended": False},
        Change.NOTE_TOLD: {"told": True},
        AGAIN: {"prefect": PrefectView.AWAITING},
        Change.SET_PENDING: {"prefect": PrefectView.ACTIVE},
        Change.SET_RUNNING: {"prefect": PrefectView.ACTIVE},
        Change.REFUSE_SUSPENSION: {"prefect": PrefectView.ACTIVE},
        Change.SET_SUSPENDED: {"prefect": PrefectView.SUSPENDED},
        FINAL: {"prefect": end_seen(now.exit_kind)},
    }
    return replace(now, **changes[change])


def _node_cleans_up(now: Said) -> Said:
    return now if now.state in GRANTED else replace(now, held=False, young=False)


def test_both_come_to_agree_and_then_nothing_is_done() -> None:
    """So nothing is done for ever: no loop of retries, of forced states."""
    for found in EVERYTHING:
        now = found
        for _ in range(6):
            for change in agree(now):
                now = after(change, now)
            now = _node_cleans_up(now)
        assert agree(now) == (), (found, now)
        unknown = now.prefect is PrefectView.UNKNOWN
        if now.state is ENDED and not unknown:
            assert now.told, (found, now)
            assert now.prefect in {end_seen(now.exit_kind), PrefectView.MISSING}, (found, now)
        if now.state is WAITING and not unknown:
            says = {PrefectView.SCHEDULED, PrefectView.AWAITING}
            assert now.prefect in ({PrefectView.SUSPENDED} if now.suspended else says), (found, now)


# -- the rows of the table -------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [PrefectView.CRASHED, PrefectView.SCHEDULED, PrefectView.AWAITING, PrefectView.PENDING],
)
def test_a_run_that_runs_is_running_whatever_was_written_over_it(view: PrefectView) -> None:
    """Its flow process died, which another one follows; or it was taken for one that waits."""
    assert agree(Said(RUNNING, view, held=True)) == (Change.SET_RUNNING,)
    waits = view in {PrefectView.SCHEDULED, PrefectView.AWAITING}
    # It is about to be, and may copy data for hours until then.
    assert agree(Said(CLAIMED, view, held=True)) == ((Change.SET_PENDING,) if waits else ())
    assert agree(Said(CLAIMED, view, held=True, young=True)) == ()  # it is told beside its start


def test_a_run_whose_flow_broke_is_not_called_cancelled() -> None:
    assert agree(Said(RUNNING, PrefectView.FAILED, held=True)) == (Change.END_BROKEN,)


def test_a_run_that_somebody_called_completed_is_cancelled_and_called_so() -> None:
    found = Said(RUNNING, PrefectView.COMPLETED, held=True)
    assert agree(found) == (Change.END_CANCELLED,)
    ended = replace(found, state=ENDED, exit_kind=ExitKind.CANCELLED)
    assert agree(ended) == ()  # its node stops it first
    assert agree(replace(ended, held=False)) == (FINAL,)


def test_an_ended_run_is_told_until_prefect_was_seen_to_say_so() -> None:
    for kind in ExitKind:
        found = Said(ENDED, PrefectView.ACTIVE, exit_kind=kind)
        assert agree(found) == (FINAL,)
        assert agree(replace(found, young=True)) == ()  # its flow does it itself
        heard = replace(found, prefect=end_seen(kind), young=True)
        assert agree(heard) == (Change.NOTE_TOLD,)
        assert agree(replace(heard, told=True)) == ()
        assert agree(replace(found, prefect=PrefectView.MISSING)) == (Change.NOTE_TOLD,)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ExitKind.OK, PrefectView.CANCELLING),  # a cancel in the run's last second
        (ExitKind.OK, PrefectView.CRASHED),  # its flow was killed in its clean-up
        (ExitKind.OK, PrefectView.FAILED),  # a commit that was done, but reported failed
        (ExitKind.FAILED, PrefectView.COMPLETED),
        (ExitKind.CANCELLED, PrefectView.CRASHED),
    ],
)
def test_a_last_state_that_disagrees_is_corrected(kind: ExitKind, said: PrefectView) -> None:
    assert agree(Said(ENDED, said, exit_kind=kind)) == (FINAL,)


def test_an_end_that_was_not_told_yet_is_no_wish_for_a_retry() -> None:
    found = Said(ENDED, PrefectView.SCHEDULED)
    assert agree(found) == (FINAL,)
    assert agree(replace(found, told=True)) == (Change.RETRY,)
    assert agree(replace(found, told=True, is_rank=True)) == (FINAL,)


def test_why_a_run_waited_is_nobodys_wish_however_late_it_comes() -> None:
    late = PrefectView.of("SCHEDULED", AWAITING_HEADROOM)
    assert agree(Said(ENDED, late, told=True)) == (FINAL,)
    assert agree(Said(WAITING, late, suspended=True)) == (Change.SET_SUSPENDED,)
    for name in ("AwaitingRetry", "Scheduled", None):  # a person's
        assert agree(Said(ENDED, PrefectView.of("SCHEDULED", name), told=True)) == (Change.RETRY,)


def test_a_suspended_run_gives_its_place_back() -> None:
    found = Said(RUNNING, PrefectView.PAUSED, held=True)
    assert agree(found) == (Change.SUSPEND, Change.SET_SUSPENDED)
    assert agree(replace(found, program_over=True)) == ()  # only its end is missing


def test_a_suspended_run_waits_until_it_is_resumed() -> None:
    found = Said(WAITING, PrefectView.SUSPENDED, suspended=True)
    assert agree(found) == ()
    # Prefect ends a pause of its own page after some minutes: it is told to have no end.
    assert agree(replace(found, prefect=PrefectView.PAUSED)) == (Change.SET_SUSPENDED,)
    assert agree(replace(found, prefect=PrefectView.FAILED)) == (Change.SET_SUSPENDED,)
    assert agree(replace(found, prefect=PrefectView.SCHEDULED)) == (Change.RESUME,)
    assert agree(replace(found, prefect=PrefectView.ACTIVE)) == (Change.RESUME, AGAIN)


def test_what_cannot_be_suspended_goes_on_and_says_so() -> None:
    gang = Said(RUNNING, PrefectView.PAUSED, held=True, leads_gang=True)
    assert agree(gang) == (Change.REFUSE_SUSPENSION,)
    assert agree(replace(gang, leads_gang=False, is_rank=True)) == (Change.REFUSE_SUSPENSION,)


@pytest.mark.parametrize("view", [PrefectView.ACTIVE, PrefectView.CRASHED, PrefectView.PENDING])
def test_a_run_that_waits_again_is_scheduled_once_its_node_has_let_go_of_it(
    view: PrefectView,
) -> None:
    assert agree(Said(WAITING, view, held=True)) == ()
    assert agree(Said(WAITING, view)) == (AGAIN,)
    assert agree(Said(WAITING, PrefectView.AWAITING)) == ()


def test_every_state_type_of_prefect_means_something_here() -> None:
    types = {each.name for each in StateType}
    assert PrefectView.UNKNOWN not in map(PrefectView.of, types)
    assert PrefectView.of("OF_A_LATER_VERSION") is PrefectView.UNKNOWN
