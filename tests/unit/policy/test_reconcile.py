"""Every situation that a node can find a run in has one answer."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from headway.model.run import GRANTED, ExitKind, RunState
from headway.policy.reconcile import (
    MAX_FLOW_STARTS,
    MAX_FLOWS_OF_A_PROGRAM,
    Action,
    Container,
    FlowProcess,
    Situation,
    reconcile,
)

WAITING, CLAIMED = RunState.WAITING, RunState.CLAIMED
RUNNING, ENDED = RunState.RUNNING, RunState.ENDED
STOP, RELEASE = Action.STOP_CONTAINER, Action.RELEASE
GONE, EXITED, LIVE = Container.NONE, Container.EXITED, Container.LIVE
NO_FLOW, STARTING, ALIVE = FlowProcess.NONE, FlowProcess.STARTING, FlowProcess.ALIVE
BOTH = (False, True)
BY_OTHERS = (ExitKind.CANCELLED, ExitKind.INFRASTRUCTURE)

EVERYTHING = [
    *(
        Situation(state, *values, suspended=suspended, overdue=overdue)
        for state, *values, suspended, overdue in product(
            (WAITING, CLAIMED, RUNNING),
            FlowProcess,
            Container,
            BOTH,  # has_lease
            (0, MAX_FLOW_STARTS, MAX_FLOWS_OF_A_PROGRAM),
            BOTH,  # attempts_left
            BOTH,  # is_rank
            BOTH,
            BOTH,
        )
    ),
    *(
        Situation(ENDED, *values, exit_kind=kind)
        for *values, kind in product(FlowProcess, Container, BOTH, ExitKind)
    ),
]
"""Also what the ledger forbids, such as a run that was granted and is suspended."""


def running(**more: object) -> Situation:
    return replace(Situation(RUNNING, has_lease=True), **more)  # type: ignore[arg-type]


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


def test_only_what_is_granted_and_has_no_flow_process_is_given_another_one() -> None:
    for found in EVERYTHING:
        if Action.START_FLOW in reconcile(found):
            assert (found.state in GRANTED, found.flow) == (True, NO_FLOW), found
            assert found.container is not GONE, found


def test_what_is_not_granted_is_stopped_and_let_go_and_no_more() -> None:
    for found in EVERYTHING:
        if found.state not in GRANTED:
            unaware = found.suspended or found.exit_kind in BY_OTHERS
            ends = {Action.END_FLOW} if unaware and found.has_lease else set()
            assert set(reconcile(found)) <= {STOP, RELEASE} | ends, found
            assert (STOP in reconcile(found)) >= (found.container is LIVE), found


def after(action: Action, now: Situation) -> Situation:
    """The situation once *action* was carried out."""
    changes: dict[Action, dict[str, Any]] = {
        Action.END_INFRASTRUCTURE: {"state": ENDED, "exit_kind": ExitKind.INFRASTRUCTURE},
        Action.REQUEUE: {"state": WAITING},
        Action.GIVE_BACK: {"state": WAITING, "has_lease": False},
        Action.START_FLOW: {"flow": ALIVE},
        STOP: {"container": GONE if now.flow is NO_FLOW else EXITED},
        RELEASE: {"has_lease": False},
    }
    return replace(now, **changes.get(action, {}))


def flow_leaves(now: Situation) -> Situation:
    """Its flow process finds that the run is its own no longer, cleans up, and is gone."""
    if now.flow is NO_FLOW or now.state in GRANTED:
        return now
    return replace(now, flow=NO_FLOW, container=GONE, has_lease=False)


def test_every_situation_comes_to_rest_and_then_nothing_is_left() -> None:
    """So nothing is done for ever: no loop of starts, of stops."""
    for found in EVERYTHING:
        now = found
        for _ in range(4):
            for action in reconcile(now):
                now = after(action, now)
            now = flow_leaves(now)
        assert reconcile(now) == (), (found, now)
        if now.state not in GRANTED:
            assert (now.has_lease, now.container) == (False, GONE), (found, now)


# -- the rows of the table -------------------------------------------------------------


def test_a_live_flow_is_left_to_its_work() -> None:
    for container in Container:
        assert reconcile(running(flow=ALIVE, container=container)) == ()


@pytest.mark.parametrize("container", [EXITED, LIVE])
@pytest.mark.parametrize("state", [ENDED, WAITING])
def test_what_ended_or_went_back_is_stopped_then_let_go(
    state: RunState, container: Container
) -> None:
    found = running(state=state, container=container)
    assert reconcile(found) == (STOP, RELEASE)
    stop = (STOP,) if container is LIVE else ()  # the flow measures one that has exited
    assert reconcile(replace(found, flow=ALIVE)) == stop


@pytest.mark.parametrize(
    "unwanted",
    [
        *({"state": ENDED, "exit_kind": kind} for kind in BY_OTHERS),
        {"state": WAITING, "suspended": True},
    ],
)
def test_what_its_user_does_not_want_now_is_not_staged_to_the_end(unwanted: Any) -> None:
    found = running(flow=ALIVE, **unwanted)
    assert reconcile(found) == (Action.END_FLOW,)
    assert reconcile(replace(found, has_lease=False)) == ()  # it is cleaning up
    assert reconcile(replace(found, exit_kind=ExitKind.OK, suspended=False)) == ()


@pytest.mark.parametrize(
    ("state", "container", "left", "then"),
    [
        (CLAIMED, LIVE, True, (Action.START_FLOW,)),
        (RUNNING, EXITED, True, (Action.START_FLOW,)),
        (RUNNING, LIVE, False, (Action.START_FLOW,)),
        (CLAIMED, GONE, True, (Action.GIVE_BACK,)),
        (CLAIMED, GONE, False, (Action.GIVE_BACK,)),
        (RUNNING, GONE, True, (Action.REQUEUE, RELEASE)),
        (RUNNING, GONE, False, (Action.END_INFRASTRUCTURE, RELEASE)),
    ],
)
def test_a_run_without_its_flow_is_followed_or_goes_back_or_ends(
    state: RunState, container: Container, left: bool, then: tuple[Action, ...]
) -> None:
    found = running(state=state, container=container, attempts_left=left)
    assert reconcile(found) == then


def test_a_claim_that_no_process_takes_up_ends() -> None:
    found = running(state=CLAIMED, flow=STARTING)
    assert reconcile(found) == ()
    assert reconcile(replace(found, overdue=True)) == (Action.GIVE_BACK,)
    hangs = replace(found, overdue=True, flow=ALIVE)
    assert reconcile(hangs) == (Action.GIVE_BACK, Action.KILL_FLOW)
    for flow in (STARTING, ALIVE):
        begun = replace(found, overdue=True, container=LIVE, flow=flow)
        assert reconcile(begun) == ()


@pytest.mark.parametrize("state", [CLAIMED, RUNNING])
@pytest.mark.parametrize(
    ("container", "stop", "most"),
    [(LIVE, (STOP,), MAX_FLOWS_OF_A_PROGRAM), (GONE, (), MAX_FLOW_STARTS)],
)
def test_flows_that_die_again_and_again_end_the_run(
    state: RunState, container: Container, stop: tuple[Action, ...], most: int
) -> None:
    found = running(state=state, container=container, flow_starts=most)
    assert reconcile(found) == (Action.END_INFRASTRUCTURE, *stop, RELEASE)
    once_more = replace(found, flow_starts=most - 1)
    assert Action.END_INFRASTRUCTURE not in reconcile(once_more)
