"""How long `headway node remove` waits before it gives a node's places away."""

from pathlib import Path

import pytest

from headway.admin.node_removal import wait_until_unheld
from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.lease import Demand
from headway.model.node import NodeState
from headway.policy.guard import GuardTimes
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.ports.clock import FakeClock
from tests.support.leading import grant_in_term
from tests.support.postgresql import with_ledger

RUN = "00000000-0000-4000-8000-000000000001"
TIMES = GuardTimes(60.0)


class Ageing(FakeClock):
    """A clock that ages the leases in the ledger, which goes by the database's clock."""

    site: Site
    renews = False

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.site.ledger.nodes.set_state("here", NodeState.READY, "")  # as its worker does
        renew(self.site, TIMES.ttl_s - (0.0 if self.renews else self.monotonic_s()))


def renew(site: Site, ttl_s: float, *, expire: bool = True) -> None:
    site.ledger.renewals.renew(
        "here", "", containers={(RUN, 1)}, flows=(), ttl_s=ttl_s, expire=expire
    )


@pytest.fixture
def clock(tmp_path: Path) -> Ageing:
    """That of a site whose node holds a lease, renewed just now."""
    made = Ageing()
    made.site = Site(
        Settings(home=with_ledger(tmp_path), runtime="process", node="here", lease_ttl_s=60.0), made
    )
    join_site(made.site)
    ledger = made.site.ledger
    here = ledger.nodes.all()[0].node
    ledger.nodes.remove("here")
    ledger.nodes.register(here, boot_id="b", worker_token="w")  # without an id, for `renew`
    ledger.runs.enqueue(
        RUN, TrainingJob(name="job", image="i:1", command=["true"]).document(), name="job",
        owner="me", team="default", pool="gpu", priority=0, submitted_at=ledger.now(),
    )  # fmt: skip
    grant_in_term(ledger, RUN, "here", Demand(64 * MIB, 0.1))
    renew(made.site, TIMES.ttl_s)
    return made


def test_it_waits_until_a_margin_after_the_expiry_and_tells_how_long(clock: Ageing) -> None:
    said: list[str] = []
    wait_until_unheld(clock.site, "here", said.append)
    assert clock.monotonic_s() >= TIMES.ttl_s + TIMES.margin_s - 2.0
    assert "may be alive for 1 min" in said[0]
    assert "--powered-off" in said[0]
    assert said[-1].endswith("left …")
    assert clock.site.ledger.nodes.remove("here", margin_s=TIMES.margin_s)


def test_a_node_whose_worker_comes_back_is_not_given_away(clock: Ageing) -> None:
    clock.renews = True
    with pytest.raises(InvalidInput, match="its worker came back"):
        wait_until_unheld(clock.site, "here", lambda _: None)


def test_one_that_was_the_only_node_stops_nothing_by_itself(clock: Ageing) -> None:
    renew(clock.site, TIMES.ttl_s, expire=False)
    with pytest.raises(InvalidInput, match="--powered-off"):
        wait_until_unheld(clock.site, "here", lambda _: None)


def test_from_the_begin_on_its_guard_renews_nothing(clock: Ageing) -> None:
    answers: list[int] = []
    before = clock.site.ledger.nodes.held_s("here", TIMES.margin_s)

    def ask(_: str) -> None:
        answer = clock.site.ledger.renewals.renew(
            "here", "", containers={(RUN, 1)}, flows=(), ttl_s=9000.0, expire=True
        )
        answers.append(len(answer.renewed))

    wait_until_unheld(clock.site, "here", ask)
    assert answers[0] == 0
    assert before <= TIMES.ttl_s + TIMES.margin_s


def test_a_wait_that_is_interrupted_leaves_the_node_as_it_was(clock: Ageing) -> None:
    clock.site.ledger.nodes.set_state("here", NodeState.DRAINING, "new driver")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait_until_unheld(clock.site, "here", interrupt)
    found = clock.site.ledger.nodes.get("here")
    assert found is not None
    assert (found.node.state, found.node.state_reason) == (NodeState.DRAINING, "new driver")


def test_nobody_waits_for_a_node_that_holds_nothing(clock: Ageing) -> None:
    clock.site.ledger.leases.release_node("here")
    wait_until_unheld(clock.site, "here", lambda _: None)
    assert clock.monotonic_s() == 0.0
