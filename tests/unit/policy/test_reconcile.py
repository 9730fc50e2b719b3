"""Every situation a run can be found in has one answer."""

from itertools import product

import pytest

from headway.model.run import RunState
from headway.policy.reconcile import MAX_FLOW_STARTS, Action, PrefectView, Situation, reconcile

WAITING, CLAIMED = RunState.WAITING, RunState.CLAIMED
RUNNING, ENDED = RunState.RUNNING, RunState.ENDED
STOP, RELEASE = Action.STOP_CONTAINER, Action.RELEASE
AGAIN, FINAL = Action.RESCHEDULE, Action.SET_FINAL
UNWANTED = (PrefectView.CANCELLING, PrefectView.OVER, PrefectView.MISSING)

EVERYTHING = [
    Situation(state, prefect, alive, container, lease, starts, left)
    for state, prefect, alive, container, lease, starts, left in product(
        RunState,
        PrefectView,
        (True, False),
        (True, False),
        (True, False),
        (0, MAX_FLOW_STARTS),
        (True, False),
    )
]


def seen(
    state: RunState,
    prefect: PrefectView,
    *,
    alive: bool = False,
    container: bool = False,
    lease: bool = True,
    starts: int = 0,
    left: bool = True,
) -> Situation:
    return Situation(state, prefect, alive, container, lease, starts, left)


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("prefect", list(PrefectView))
def test_a_live_flow_is_left_to_its_work(state, prefect):
    revived = state is RUNNING and prefect is PrefectView.CRASHED
    more = (Action.SET_RUNNING,) if revived else ()
    for container in (True, False):
        held = seen(state, prefect, alive=True, container=container)
        assert reconcile(held) == (Action.RENEW, *more)
        bare = seen(state, prefect, alive=True, container=container, lease=False)
        assert reconcile(bare) == more


@pytest.mark.parametrize(
    ("container", "lease", "cleared"),
    [
        (True, True, (STOP, RELEASE)),
        (True, False, (STOP, RELEASE)),
        (False, True, (RELEASE,)),
        (False, False, ()),
    ],
)
@pytest.mark.parametrize("prefect", list(PrefectView))
def test_an_ended_run_keeps_nothing_and_prefect_hears_of_it(prefect, container, lease, cleared):
    settled = {PrefectView.OVER, PrefectView.FAILED, PrefectView.MISSING, PrefectView.UNKNOWN}
    told = () if prefect in settled else (FINAL,)
    found = seen(ENDED, prefect, container=container, lease=lease)
    assert reconcile(found) == (*cleared, *told)


@pytest.mark.parametrize("state", [WAITING, CLAIMED, RUNNING])
@pytest.mark.parametrize("container", [True, False])
def test_nothing_is_concluded_while_prefect_is_silent(state, container):
    unknown = PrefectView.UNKNOWN
    assert reconcile(seen(state, unknown, container=container)) == (Action.RENEW,)
    assert reconcile(seen(state, unknown, container=container, lease=False)) == ()


@pytest.mark.parametrize("state", [WAITING, CLAIMED, RUNNING])
@pytest.mark.parametrize("prefect", UNWANTED)
@pytest.mark.parametrize("container", [True, False])
def test_what_nobody_wants_is_ended(state, prefect, container):
    stop = (STOP,) if container else ()
    final = (Action.SET_CANCELLED,) if prefect is PrefectView.CANCELLING else ()
    expected = (*stop, Action.END_CANCELLED, RELEASE, *final)
    assert reconcile(seen(state, prefect, container=container)) == expected


@pytest.mark.parametrize("state", [WAITING, CLAIMED, RUNNING])
def test_a_run_whose_flow_broke_is_not_called_cancelled(state):
    found = seen(state, PrefectView.FAILED, container=True)
    assert reconcile(found) == (STOP, Action.END_BROKEN, RELEASE)


RESUMED = [
    # state, container, attempts left -> what is done before it is scheduled again
    (CLAIMED, True, True, (Action.RENEW,)),
    (RUNNING, True, True, (Action.RENEW,)),
    (RUNNING, True, False, (Action.RENEW,)),
    (CLAIMED, False, True, (Action.GIVE_BACK,)),
    (CLAIMED, False, False, (Action.GIVE_BACK,)),
    (RUNNING, False, True, (Action.REQUEUE,)),
    (WAITING, True, True, (STOP, RELEASE)),
]


@pytest.mark.parametrize(("state", "container", "left", "first"), RESUMED)
@pytest.mark.parametrize(
    "prefect", [PrefectView.SCHEDULED, PrefectView.ACTIVE, PrefectView.CRASHED]
)
def test_a_run_without_its_flow_is_followed_or_goes_back(state, container, left, first, prefect):
    found = seen(state, prefect, container=container, left=left, lease=True)
    scheduled = () if prefect is PrefectView.SCHEDULED else (AGAIN,)
    assert reconcile(found) == (*first, *scheduled)


def test_a_waiting_run_that_is_scheduled_is_left_alone():
    assert reconcile(seen(WAITING, PrefectView.SCHEDULED, lease=False)) == ()


def test_a_run_that_vanished_too_often_ends():
    found = seen(RUNNING, PrefectView.CRASHED, left=False)
    assert reconcile(found) == (Action.END_INFRASTRUCTURE, RELEASE, FINAL)


@pytest.mark.parametrize("state", [CLAIMED, RUNNING])
@pytest.mark.parametrize(("container", "stop"), [(True, (STOP,)), (False, ())])
def test_flows_that_die_again_and_again_end_the_run(state, container, stop):
    found = seen(state, PrefectView.CRASHED, container=container, starts=MAX_FLOW_STARTS)
    assert reconcile(found) == (*stop, Action.END_INFRASTRUCTURE, RELEASE, FINAL)
    once_more = seen(state, PrefectView.CRASHED, container=container, starts=MAX_FLOW_STARTS - 1)
    assert Action.END_INFRASTRUCTURE not in reconcile(once_more)


def test_no_grant_is_given_up_while_its_container_may_live():
    frees = {RELEASE, Action.REQUEUE, Action.GIVE_BACK}
    for found in EVERYTHING:
        actions = reconcile(found)
        for freeing in frees & set(actions):
            stopped = STOP in actions[: actions.index(freeing)]
            assert stopped or not found.container, found
        assert len(set(actions)) == len(actions), found


def test_only_an_existing_container_is_stopped():
    for found in EVERYTHING:
        assert found.container or STOP not in reconcile(found), found


def test_every_state_type_of_prefect_means_something_here() -> None:
    assert PrefectView.of("PENDING") is PrefectView.ACTIVE
    assert PrefectView.of("CRASHED") is PrefectView.CRASHED
    assert PrefectView.of("COMPLETED") is PrefectView.of("CANCELLED") is PrefectView.OVER
