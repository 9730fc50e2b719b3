"""Every situation a run can be found in has one answer."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from prefect.client.schemas.objects import StateType

from headway.model.prefect_view import PrefectView
from headway.model.run import GRANTED, ExitKind, RunState
from headway.policy.reconcile import (
    MAX_FLOW_STARTS,
    ON_PREFECT,
    Action,
    Container,
    FlowProcess,
    Situation,
    end_seen,
    reconcile,
)

WAITING, CLAIMED = RunState.WAITING, RunState.CLAIMED
RUNNING, ENDED = RunState.RUNNING, RunState.ENDED
STOP, RELEASE = Action.STOP_CONTAINER, Action.RELEASE
AGAIN, FINAL = Action.RESCHEDULE, Action.SET_FINAL
GONE, EXITED, LIVE = Container.NONE, Container.EXITED, Container.LIVE
NO_FLOW, STARTING, ALIVE = FlowProcess.NONE, FlowProcess.STARTING, FlowProcess.ALIVE
CANCELS = (PrefectView.CANCELLING, PrefectView.CANCELLED, PrefectView.MISSING)
ENDS = {Action.END_CANCELLED, Action.END_BROKEN, Action.END_INFRASTRUCTURE}
BOTH = (False, True)

_OPEN = product(
    (WAITING, CLAIMED, RUNNING),
    PrefectView,
    FlowProcess,
    Container,
    BOTH,  # has_lease
    (0, MAX_FLOW_STARTS),
    BOTH,  # attempts_left
    BOTH,  # is_rank
    BOTH,  # leads_gang
)
_OVER = product(PrefectView, FlowProcess, Container, BOTH, BOTH, ExitKind, BOTH)
EVERYTHING = [
    *(
        Situation(*values, suspended=suspended, overdue=overdue)
        for values in _OPEN
        for suspended, overdue in product(BOTH, BOTH)
    ),
    *(
        Situation(ENDED, *values, is_rank=rank, exit_kind=kind, told=told)
        for *values, rank, kind, told in _OVER
    ),
]
"""Also what the ledger forbids, such as a run that was granted and is suspended."""
POSSIBLE = [
    found
    for found in EVERYTHING
    if not (found.suspended and found.state is not WAITING)
    and not (found.is_rank and found.leads_gang)
]


def running(prefect: PrefectView, **more: object) -> Situation:
    return replace(Situation(RUNNING, prefect, has_lease=True), **more)  # type: ignore[arg-type]


# -- what must always hold -------------------------------------------------------------


def test_nothing_is_released_while_its_container_may_live() -> None:
    for found in EVERYTHING:
        actions = reconcile(found)
        for freeing in {RELEASE, Action.GIVE_BACK} & set(actions):
            stopped = STOP in actions[: actions.index(freeing)]
            assert stopped or found.container is GONE, found
            overdue = freeing is Action.GIVE_BACK and found.overdue and found.state is CLAIMED
            assert found.flow is NO_FLOW or overdue, found
            assert found.flow is not ALIVE or Action.KILL_FLOW in actions, found
        assert len(set(actions)) == len(actions), found
        assert found.container is not GONE or STOP not in actions, found


def test_prefect_is_made_to_say_only_what_the_ledger_says_by_then() -> None:
    for found in POSSIBLE:
        now = found
        for action in reconcile(found):
            if action in ON_PREFECT:
                assert _ledger_says(action, now), (found, action)
            now = after(action, now)


def _ledger_says(action: Action, now: Situation) -> bool:
    match action:
        case Action.SET_FINAL:
            return now.state is ENDED
        case Action.SET_SUSPENDED:
            return now.state is WAITING and now.suspended
        case Action.RESCHEDULE:
            return now.state is not ENDED and not now.suspended
        case _:
            return now.state in GRANTED


def test_nothing_is_concluded_while_prefect_is_silent() -> None:
    for found in EVERYTHING:
        if found.prefect is PrefectView.UNKNOWN and found.state is not ENDED:
            # What is left of an attempt before goes all the same.
            frees = {STOP, RELEASE} if found.state is WAITING else set()
            assert frees.issuperset(reconcile(found)), found
        if found.prefect is PrefectView.UNKNOWN:
            assert not ON_PREFECT & set(reconcile(found)), found


def test_a_run_that_has_ended_begins_again_only_when_its_user_says_so() -> None:
    for found in EVERYTHING:
        actions = reconcile(found)
        wanted = found.told and found.prefect is PrefectView.SCHEDULED and not found.is_rank
        wanted &= found.state is ENDED and found.flow is NO_FLOW
        assert (Action.RETRY in actions) == wanted, found
        if found.state is ENDED:
            others = {STOP, RELEASE, Action.NOTE_TOLD, Action.RETRY, FINAL}
            unaware = found.exit_kind is ExitKind.CANCELLED and found.has_lease
            assert set(actions) <= others | ({Action.END_FLOW} if unaware else set()), found


def test_the_ledger_hears_of_a_cancel_whatever_became_of_the_flow_process() -> None:
    for found in EVERYTHING:
        if found.prefect in CANCELS and found.state is not ENDED:
            assert Action.END_CANCELLED in reconcile(found), found
        if found.prefect in CANCELS and found.state in GRANTED and found.container is LIVE:
            assert STOP in reconcile(found), found


def after(action: Action, now: Situation) -> Situation:
    """The situation once *action* was carried out."""
    if action in {Action.END_CANCELLED, Action.END_BROKEN, Action.END_INFRASTRUCTURE}:
        cancelled = action is Action.END_CANCELLED
        return _ended(now, ExitKind.CANCELLED if cancelled else ExitKind.INFRASTRUCTURE)
    stopped = GONE if now.flow is NO_FLOW else EXITED
    changes: dict[Action, dict[str, Any]] = {
        Action.REQUEUE: {"state": WAITING},
        Action.RETRY: {"state": WAITING, "told": False},
        Action.GIVE_BACK: {"state": WAITING, "has_lease": False},
        Action.SUSPEND: {"state": WAITING, "suspended": True},
        Action.RESUME: {"suspended": False},
        STOP: {"container": stopped},
        RELEASE: {"has_lease": False},
        Action.NOTE_TOLD: {"told": True},
        AGAIN: {"prefect": PrefectView.SCHEDULED},
        Action.SET_RUNNING: {"prefect": PrefectView.ACTIVE},
        Action.REFUSE_SUSPENSION: {"prefect": PrefectView.ACTIVE},
        Action.SET_SUSPENDED: {"prefect": PrefectView.SUSPENDED},
        FINAL: {"prefect": end_seen(now.exit_kind)},
    }
    return replace(now, **changes.get(action, {}))


def _ended(now: Situation, kind: ExitKind) -> Situation:
    return replace(now, state=ENDED, exit_kind=kind, told=False, suspended=False)


def _flow_leaves(now: Situation) -> Situation:
    """Its flow process finds that the run is its own no longer, cleans up, and is gone."""
    if now.flow is NO_FLOW or now.state in GRANTED:
        return now
    return replace(now, flow=NO_FLOW, container=GONE, has_lease=False)


def test_every_situation_comes_to_rest_and_then_nothing_is_left() -> None:
    """So nothing is done for ever: no loop of retries, of forced states, of stops."""
    for found in POSSIBLE:
        now = found
        for _ in range(6):
            actions = reconcile(now)
            if not actions and now == _flow_leaves(now):
                break
            for action in actions:
                now = after(action, now)
            now = _flow_leaves(now)
        assert reconcile(now) == (), (found, now)
        if now.state is ENDED:
            assert (now.has_lease, now.container) == (False, GONE), (found, now)
            assert now.told or now.prefect is PrefectView.UNKNOWN, (found, now)
            assert now.prefect in {
                end_seen(now.exit_kind),
                PrefectView.MISSING,
                PrefectView.UNKNOWN,
            } or (now.told and now.prefect is not PrefectView.SCHEDULED), (found, now)


# -- the rows of the table -------------------------------------------------------------


@pytest.mark.parametrize("prefect", [PrefectView.ACTIVE, PrefectView.UNKNOWN])
def test_a_live_flow_is_left_to_its_work(prefect: PrefectView) -> None:
    for container in Container:
        found = running(prefect, flow=ALIVE, container=container)
        assert reconcile(found) == ()


@pytest.mark.parametrize(
    "prefect", [PrefectView.CRASHED, PrefectView.SCHEDULED, PrefectView.PENDING]
)
def test_a_run_that_runs_is_running_whatever_was_written_over_it(prefect: PrefectView) -> None:
    """Its stub died; or another node's janitor took it for one that waits."""
    found = running(prefect, flow=ALIVE, container=LIVE)
    assert reconcile(found) == (Action.SET_RUNNING,)
    assert reconcile(replace(found, state=CLAIMED)) == ()  # it is about to be


@pytest.mark.parametrize("container", [EXITED, LIVE])
def test_a_cancelled_run_ends_in_the_ledger_then_its_container_stops(container: Container) -> None:
    found = running(PrefectView.CANCELLING, container=container)
    assert reconcile(found) == (Action.END_CANCELLED, STOP, RELEASE, FINAL)
    followed = replace(found, flow=ALIVE)
    stop = (STOP,) if container is LIVE else ()  # the flow measures one that has exited
    assert reconcile(followed) == (Action.END_CANCELLED, *stop)


def test_a_cancelled_run_that_has_no_container_yet_is_not_staged_to_the_end() -> None:
    found = running(PrefectView.CANCELLING, state=CLAIMED, flow=ALIVE)
    assert reconcile(found) == (Action.END_CANCELLED, Action.END_FLOW)
    # Ended by `headway cancel` without Prefect, or by a worker that was killed right behind it.
    over = replace(found, state=ENDED, exit_kind=ExitKind.CANCELLED)
    for prefect in (PrefectView.UNKNOWN, PrefectView.ACTIVE):
        assert reconcile(replace(over, prefect=prefect)) == (Action.END_FLOW,)
    assert reconcile(replace(over, has_lease=False)) == ()  # it is cleaning up
    assert reconcile(replace(over, exit_kind=ExitKind.OK)) == ()


def test_a_waiting_run_lets_go_of_its_last_attempt_before_it_is_ended() -> None:
    found = running(PrefectView.CANCELLED, state=WAITING, container=LIVE)
    assert reconcile(found) == (STOP, RELEASE, Action.END_CANCELLED)


def test_a_run_whose_flow_broke_is_not_called_cancelled() -> None:
    found = running(PrefectView.FAILED, container=LIVE)
    assert reconcile(found) == (Action.END_BROKEN, STOP, RELEASE)


def test_a_run_that_somebody_called_completed_is_cancelled_and_called_so() -> None:
    found = running(PrefectView.COMPLETED, container=LIVE)
    assert reconcile(found) == (Action.END_CANCELLED, STOP, RELEASE, FINAL)


def test_an_ended_run_is_told_until_prefect_was_seen_to_say_so() -> None:
    for kind in ExitKind:
        found = Situation(ENDED, PrefectView.ACTIVE, exit_kind=kind)
        assert reconcile(found) == (FINAL,)
        heard = replace(found, prefect=end_seen(kind))
        assert reconcile(heard) == (Action.NOTE_TOLD,)
        assert reconcile(replace(heard, told=True)) == ()
        assert reconcile(replace(found, prefect=PrefectView.MISSING)) == (Action.NOTE_TOLD,)


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
    assert reconcile(Situation(ENDED, said, exit_kind=kind)) == (FINAL,)


def test_an_end_that_was_not_told_yet_is_no_wish_for_a_retry() -> None:
    found = Situation(ENDED, PrefectView.SCHEDULED)
    assert reconcile(found) == (FINAL,)
    assert reconcile(replace(found, told=True)) == (Action.RETRY,)
    assert reconcile(replace(found, told=True, is_rank=True)) == (FINAL,)


def test_a_suspended_run_gives_its_place_back() -> None:
    found = running(PrefectView.PAUSED, container=LIVE)
    assert reconcile(found) == (Action.SUSPEND, Action.SET_SUSPENDED, STOP, RELEASE)
    assert reconcile(replace(found, flow=ALIVE)) == (Action.SUSPEND, Action.SET_SUSPENDED, STOP)


def test_a_suspended_run_waits_until_it_is_resumed() -> None:
    found = Situation(WAITING, PrefectView.SUSPENDED, suspended=True)
    assert reconcile(found) == ()
    # Prefect ends a pause of its own page after some minutes: it is told to have no end.
    assert reconcile(replace(found, prefect=PrefectView.PAUSED)) == (Action.SET_SUSPENDED,)
    assert reconcile(replace(found, prefect=PrefectView.FAILED)) == (Action.SET_SUSPENDED,)
    assert reconcile(replace(found, prefect=PrefectView.SCHEDULED)) == (Action.RESUME,)
    assert reconcile(replace(found, prefect=PrefectView.ACTIVE)) == (Action.RESUME, AGAIN)


def test_what_cannot_be_suspended_goes_on_and_says_so() -> None:
    gang = running(PrefectView.PAUSED, flow=ALIVE, container=LIVE, leads_gang=True)
    assert reconcile(gang) == (Action.REFUSE_SUSPENSION,)
    rank = replace(gang, leads_gang=False, is_rank=True)
    assert reconcile(rank) == (Action.REFUSE_SUSPENSION,)


def test_a_program_that_has_ended_is_not_suspended() -> None:
    found = running(PrefectView.PAUSED, container=EXITED)
    assert reconcile(replace(found, flow=ALIVE)) == ()
    assert reconcile(found) == (AGAIN,)


RESUMED = [
    # state, container, attempts left -> what is done before it is scheduled again
    (CLAIMED, LIVE, True, ()),
    (RUNNING, EXITED, True, ()),
    (RUNNING, LIVE, False, ()),
    (CLAIMED, GONE, True, (Action.GIVE_BACK,)),
    (CLAIMED, GONE, False, (Action.GIVE_BACK,)),
    (RUNNING, GONE, True, (Action.REQUEUE, RELEASE)),
    (WAITING, LIVE, True, (STOP, RELEASE)),
]


@pytest.mark.parametrize(("state", "container", "left", "first"), RESUMED)
@pytest.mark.parametrize(
    "prefect", [PrefectView.SCHEDULED, PrefectView.ACTIVE, PrefectView.CRASHED]
)
def test_a_run_without_its_flow_is_followed_or_goes_back(
    state: RunState,
    container: Container,
    left: bool,
    first: tuple[Action, ...],
    prefect: PrefectView,
) -> None:
    found = running(prefect, state=state, container=container, attempts_left=left)
    scheduled = () if prefect is PrefectView.SCHEDULED else (AGAIN,)
    assert reconcile(found) == (*first, *scheduled)


def test_a_claim_that_no_process_takes_up_ends() -> None:
    found = running(PrefectView.ACTIVE, state=CLAIMED, flow=STARTING)
    assert reconcile(found) == ()
    assert reconcile(replace(found, overdue=True)) == (Action.GIVE_BACK, AGAIN)
    hangs = replace(found, overdue=True, flow=ALIVE)
    assert reconcile(hangs) == (Action.GIVE_BACK, Action.KILL_FLOW, AGAIN)
    for flow in (STARTING, ALIVE):
        begun = replace(found, overdue=True, container=LIVE, flow=flow)
        assert reconcile(begun) == ()


def test_a_waiting_run_that_is_scheduled_is_left_alone() -> None:
    assert reconcile(Situation(WAITING, PrefectView.SCHEDULED)) == ()


def test_a_run_that_vanished_too_often_ends() -> None:
    found = running(PrefectView.CRASHED, attempts_left=False)
    assert reconcile(found) == (Action.END_INFRASTRUCTURE, RELEASE, FINAL)


@pytest.mark.parametrize("state", [CLAIMED, RUNNING])
@pytest.mark.parametrize(("container", "stop"), [(LIVE, (STOP,)), (GONE, ())])
def test_flows_that_die_again_and_again_end_the_run(
    state: RunState, container: Container, stop: tuple[Action, ...]
) -> None:
    found = running(
        PrefectView.CRASHED, state=state, container=container, flow_starts=MAX_FLOW_STARTS
    )
    assert reconcile(found) == (Action.END_INFRASTRUCTURE, *stop, RELEASE, FINAL)
    once_more = replace(found, flow_starts=MAX_FLOW_STARTS - 1)
    assert Action.END_INFRASTRUCTURE not in reconcile(once_more)


def test_every_state_type_of_prefect_means_something_here() -> None:
    types = {each.name for each in StateType}
    assert PrefectView.UNKNOWN not in map(PrefectView.of, types)
    assert PrefectView.of("OF_A_LATER_VERSION") is PrefectView.UNKNOWN
