"""A node that the network cuts off from the ledger: no packet passes, and nobody is told.

The node's guard and the flow of its run are in a network namespace; the database is outside.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.model.run import Exit, ExitKind
from headway.policy.guard import GuardTimes
from headway.run.here import container_name
from headway.runtime.port import ContainerState
from headway.settings import Settings
from headway.site import Site
from tests.support import postgresql
from tests.support.fence import fence_of
from tests.support.guard_process import guard_process
from tests.support.leading import admit_in_term
from tests.support.netns import ip, namespace
from tests.support.one_run import DEMAND, OneRun
from tests.support.site import wait_for

pytestmark = [pytest.mark.postgresql, pytest.mark.long]

HERE, THERE, NETWORK = "10.77.32.1", "10.77.32.2", "10.77.32.0/24"
SPACE = f"headway-cut-{os.getpid()}"
NEAR_END = f"hc{os.getpid() % 100000}"
TTL_S = 20.0
TIMES = GuardTimes(TTL_S)


@dataclass
class Node:
    """One run on a node behind a cable."""

    run: OneRun
    site: Site

    @property
    def container(self) -> str:
        """Of the run's first attempt."""
        return container_name(self.run.run_id, 1)

    def is_alive(self) -> bool:
        """Whether the program runs."""
        status = self.site.runtime.inspect(self.container)
        return status is not None and status.state is ContainerState.RUNNING

    def log(self) -> str:
        """What the guard says."""
        return (self.site.settings.state_dir / "guard.log").read_text()[-2000:]


@contextmanager
def cut() -> Iterator[None]:
    """No packet passes between node and database."""
    ip("link", "set", NEAR_END, "down")
    try:
        yield
    finally:
        ip("link", "set", NEAR_END, "up")


@pytest.fixture(scope="module")
def ledger_server() -> Iterator[str]:
    """A PostgreSQL that the namespace reaches over one cable."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if reason := postgresql.why_none():
        pytest.skip(reason)
    with namespace(SPACE):
        ip("link", "add", NEAR_END, "type", "veth", "peer", "name", "eth0", "netns", SPACE)
        ip("addr", "add", f"{HERE}/24", "dev", NEAR_END)
        ip("link", "set", NEAR_END, "up")
        ip("-n", SPACE, "addr", "add", f"{THERE}/24", "dev", "eth0")
        ip("-n", SPACE, "link", "set", "eth0", "up")
        with postgresql.server(address=HERE, network=NETWORK) as server:
            yield server


@pytest.fixture
def node(tmp_path: Path, ledger_server: str, request: pytest.FixtureRequest) -> Iterator[Node]:
    """Its leases last so long as the test's parameter says, else `TTL_S`."""
    settings = Settings(
        home=tmp_path / "home", runtime="process", node="here",
        lease_ttl_s=getattr(request, "param", TTL_S),
        ledger_url=SecretStr(postgresql.new_database(ledger_server)),
    )  # fmt: skip
    site = Site(settings, SystemClock())
    run = OneRun(site, namespace=SPACE)
    here = site.ledger.nodes.all()[0].node
    # Where there is another node the place could be given away.
    site.ledger.nodes.register(replace(here, name="other"), boot_id="b", worker_token="w")
    try:
        with guard(site):
            yield Node(run, site)
    finally:
        run.close()


@contextmanager
def guard(site: Site) -> Iterator[None]:
    """The node's guard, behind the cable."""
    with guard_process(site, "ip", "netns", "exec", SPACE):
        ready = site.settings.state_dir / "guard.ready"
        wait_for(ready.exists, lambda: "no guard")
        yield


def test_a_job_that_ends_while_its_node_is_cut_off_has_ended_well(node: Node) -> None:
    node.run.submit(2.0)
    node.run.until_said("start")
    with cut():
        node.run.until_said("end")
        wait_for(lambda: not node.is_alive(), lambda: "it has said its last word")
        assert node.run.record().exit is None
    assert node.run.until_ended() is ExitKind.OK
    assert node.run.broken() == []
    assert node.run.said() == ["start", "end"]


@pytest.mark.parametrize("node", [120.0], indirect=True)
def test_a_node_that_is_back_before_its_leases_expire_has_lost_nothing(node: Node) -> None:
    node.run.submit(30.0)
    node.run.until_said("start")
    before = expiry(node)
    wait_for(lambda: expiry(node) > before, node.log)
    with cut():
        before = expiry(node)
        time.sleep(2 * GuardTimes(120.0).renew_every_s)  # nothing can be seen of what is not there
        assert expiry(node) == before
    wait_for(lambda: expiry(node) > before, node.log)
    assert node.run.until_ended() is ExitKind.OK
    assert node.run.broken() == []
    assert node.run.said() == ["start", "end"]


def test_a_node_that_vanishes_is_dead_before_its_place_is_given_away(node: Node) -> None:
    """It returns when another node has its run, and leaves that alone."""
    node.run.submit(600.0)
    node.run.until_said("start")
    before = expiry(node)
    wait_for(lambda: expiry(node) > before, node.log)
    with cut():
        ledger, lost = node.site.ledger, Exit(ExitKind.INFRASTRUCTURE, None, "its node is gone")
        wait_for(
            lambda: ledger.nodes.held_s("here", TIMES.margin_s) <= 0,
            lambda: f"held for {ledger.nodes.held_s('here', TIMES.margin_s)} s",
        )
        assert not node.is_alive()
        ledger.runs.requeue(fence_of(ledger, node.run.run_id), lost)
        ledger.nodes.remove("here", margin_s=TIMES.margin_s)
        lease = admit_in_term(ledger, node.run.run_id, "other", DEMAND, ttl_s=TTL_S)
    wait_for(lambda: not any(each.is_alive() for each in node.run.flows), lambda: "the flow stays")
    node.run.look()
    assert node.site.runtime.containers() == []
    assert node.site.ledger.leases.of_run(node.run.run_id) == lease
    assert node.run.record().attempt == 2
    assert node.run.said() == ["start"]


def expiry(node: Node) -> datetime:
    lease = node.site.ledger.leases.of_run(node.run.run_id)
    assert lease is not None
    return lease.expires_at
