"""A flow that dies, or whose run is cancelled, between any two steps that it takes on its engine.

The flow is a process of its own, without a Prefect server. The janitor of its node works beside
it, and what the janitor wants to be scheduled again is started, as the node's worker would.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind
from headway.settings import Settings
from headway.site import Site
from tests.support.one_run import OneRun
from tests.support.postgresql import with_ledger
from tests.support.relay import Relay, Trap, When
from tests.support.site import PATIENCE_S

pytestmark = pytest.mark.docker

LONG = pytest.mark.long
"""For cases that the others tell nearly as well: each takes seconds."""
STEPS = {
    "pull": "POST /images/create",
    "create": "POST /containers/create",
    "start": "POST /containers/.*/start",
    "follow": "POST /containers/.*/wait",
    "settle": "GET /events",
    "remove": "DELETE /containers/",
}
"""What a flow asks its engine for, in this order; it writes to the ledger before each of them."""


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    """Flows reach the engine through it, the janitor does not."""
    made = Relay(tmp_path / "engine.sock")
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, relay: Relay, busybox_image: str) -> Iterator[OneRun]:
    settings = Settings(home=with_ledger(tmp_path / "home"), runtime="docker", node="here")
    made = OneRun(Site(settings, SystemClock()), engine=relay.address)
    yield made
    made.close()


def caught(trap: Trap, run: OneRun) -> None:
    """Wait until the flow is killed or held."""
    assert trap.caught.wait(PATIENCE_S), f"{run.flows} {run.record()}"
    assert trap.pid == run.flows[-1].pid


@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("create", When.BEFORE),
        ("create", When.AFTER),
        ("start", When.BEFORE),
        ("start", When.AFTER),
        *(pytest.param("follow", when, marks=LONG) for when in When),
        ("settle", When.BEFORE),
        pytest.param("settle", When.AFTER, marks=LONG),
        *(pytest.param("remove", when, marks=LONG) for when in When),
    ],
)
def test_a_flow_killed_between_two_steps_on_its_container_costs_nothing(
    run: OneRun, relay: Relay, busybox_image: str, step: str, when: When
) -> None:
    trap = relay.kill_at(STEPS[step], when)
    run.submit(0.5, busybox_image)
    caught(trap, run)
    assert run.until_ended() is ExitKind.OK
    assert run.broken() == []
    assert run.said() == ["start", "end"]


@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("pull", When.BEFORE),
        pytest.param("create", When.BEFORE, marks=LONG),
        ("create", When.AFTER),
        ("start", When.BEFORE),
        pytest.param("start", When.AFTER, marks=LONG),
        pytest.param("follow", When.BEFORE, marks=LONG),
        ("settle", When.BEFORE),
    ],
)
def test_a_run_is_cancelled_while_its_flow_waits_for_the_engine(
    run: OneRun, relay: Relay, busybox_image: str, step: str, when: When
) -> None:
    with relay.held_at(STEPS[step], when) as trap:
        seconds = 0.5 if step == "settle" else 600.0
        run.submit(seconds, "headway-test/nowhere:held" if step == "pull" else busybox_image)
        caught(trap, run)
        run.says = PrefectView.CANCELLING
        assert run.until_ended() is ExitKind.CANCELLED
    assert run.broken() == []
    assert run.until_ended() is ExitKind.CANCELLED
    assert ("end" in run.said()) == (step == "settle")


def test_a_run_that_is_cancelled_in_its_clean_up_has_ended_as_it_did(
    run: OneRun, relay: Relay, busybox_image: str
) -> None:
    with relay.held_at(STEPS["remove"], When.BEFORE) as trap:
        run.submit(0.5, busybox_image)
        caught(trap, run)
        run.says = PrefectView.CANCELLING
        run.look()
    assert run.broken() == []
    assert run.until_ended() is ExitKind.OK


def test_a_claimed_run_is_cancelled_before_its_flow_has_begun(
    run: OneRun, relay: Relay, busybox_image: str
) -> None:
    run.submit(600.0, busybox_image)
    run.says = PrefectView.CANCELLING
    assert run.until_ended() is ExitKind.CANCELLED
    assert run.broken() == []
    assert "end" not in run.said()
