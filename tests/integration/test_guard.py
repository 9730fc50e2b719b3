"""The guard on a real ledger: what it renews, what it stops, and when; engine and ledger away."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.errors import LedgerUnreachable
from headway.ledger import Ledger
from headway.model.container_policy import ContainerPolicy
from headway.model.job import TrainingJob
from headway.model.lease import NO_EXPIRY, Demand, Lease
from headway.node.flowlock import hold_flow
from headway.node.guard import Guard
from headway.policy.guard import GuardTimes, Kill, Renew, Stop
from headway.run.guard_notes import read_notes
from headway.run.here import container_name
from headway.runtime.chosen import ChosenRuntime
from headway.runtime.port import ContainerSpec, ContainerState, Runtime
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.ports.clock import FakeClock
from tests.ports.runtime import FakeMachine, FakeRuntime, Script
from tests.support.guard_process import guard_process
from tests.support.leading import admit_in_term, grant_in_term
from tests.support.postgresql import new_ledger, with_ledger
from tests.support.site import wait_for

RUN = "00000000-0000-4000-8000-000000000001"
NAME = container_name(RUN, 1)
JOB = TrainingJob(name="job", image="image:1", command=["sleep", "600"], stop_grace="30s")
TIMES = GuardTimes(900.0)


class GuardedSite(Site):
    """A site whose ledger can be away; its engine is *engine* where there is one."""

    engine: Runtime | None = None
    away = False

    @property
    def ledger(self) -> Ledger:
        """The ledger, or the error that it does not answer."""
        if self.away:
            raise LedgerUnreachable("postgresql://gone", "no route to host")
        return super().ledger

    @cached_property
    def chosen(self) -> ChosenRuntime:
        """The test's engine, else the real one."""
        found = super().chosen
        real = found.for_stopping
        found.for_stopping = lambda before=None: self.engine or real(before)  # type: ignore[method-assign]
        return found


def enqueue(site: Site, run_id: str = RUN) -> Lease:
    site.ledger.runs.enqueue(
        run_id, JOB.document(), name="job", owner="me", team="default", pool="gpu", priority=0,
        submitted_at=site.ledger.now(),
    )  # fmt: skip
    return grant_in_term(site.ledger,
        run_id, site.settings.node, Demand(64 * MIB, 0.1),
        ttl_s=site.settings.lease_ttl_s,
    )  # fmt: skip


def another_node(site: Site) -> None:
    """A second node of the site, which could be given what the first one has."""
    here = site.ledger.nodes.all()[0].node
    site.ledger.nodes.register(replace(here, name="other"), boot_id="b", worker_token="w")


def spec(site: Site, run_id: str = RUN) -> ContainerSpec:
    log = site.settings.runs_dir / run_id / "log"
    log.mkdir(parents=True, exist_ok=True)
    return ContainerSpec(
        name=container_name(run_id, 1), run_id=run_id, attempt=1, image="image:1",
        command=("sleep", "600"), env={}, mounts=(), log_path=log / "attempt-1.log",
        host_memory_bytes=64 * MIB, cpus=0.1, shm_bytes=MIB, user=site.user_of("default"),
    )  # fmt: skip


def expiry(site: Site, run_id: str = RUN) -> datetime:
    lease = site.ledger.leases.of_run(run_id)
    assert lease is not None
    return lease.expires_at


# --- on a fake engine and a fake clock ---


class Bench:
    """One container on a node of a site of two, and its guard."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = FakeClock()
        self.machine = FakeMachine(default=Script(runs_s=1e9))
        self.engine = FakeRuntime("site", ContainerPolicy(), self.clock, self.machine)
        self.site = self.opened()
        join_site(self.site)
        self.lease = enqueue(self.site)
        self.engine.create(spec(self.site))
        self.engine.start(NAME)
        self.guard = Guard(self.site)

    def opened(self) -> GuardedSite:
        """The site as another process has it."""
        settings = Settings(
            home=with_ledger(self.home), runtime="docker", node="here", lease_ttl_s=900.0
        )
        site = GuardedSite(settings, self.clock)
        site.engine = self.engine
        return site

    def alive(self) -> bool:
        status = self.engine.inspect(NAME)
        return status is not None and status.state is ContainerState.RUNNING

    def until_dead(self) -> None:
        wait_for(lambda: not self.alive(), lambda: "the container lives on")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    another_node(made.site)
    return made


def test_what_is_alive_is_renewed_again_and_again(bench: Bench) -> None:
    assert bench.guard.act() == [Renew()]
    bench.guard.lookout.look()
    assert bench.guard.act() == []
    assert expiry(bench.site) > bench.lease.expires_at - timedelta(seconds=1)
    for _ in range(100):
        bench.clock.sleep(TIMES.renew_every_s)
        assert bench.guard.act() == [Renew()]
        bench.guard.lookout.look()
    assert bench.alive()


def test_while_the_ledger_is_away_it_counts_down_to_the_grace_time(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.site.away = True
    bench.clock.sleep(799.0)
    bench.guard.lookout.look()
    assert bench.guard.act() == []
    bench.clock.sleep(1.0)
    assert bench.guard.act() == [Stop(NAME, 30.0, 800.0)]
    bench.until_dead()
    why = read_notes(bench.site.settings.state_dir).stopped[NAME]
    assert "could not be renewed for 13 min 20 s" in why


def test_a_ledger_that_is_back_in_time_stops_the_count(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.site.away = True
    bench.clock.sleep(600.0)
    bench.guard.lookout.look()
    bench.site.away = False
    bench.guard.lookout.look()
    bench.clock.sleep(600.0)
    assert bench.guard.act() == [Renew()]
    assert bench.alive()


def test_a_machine_that_slept_too_long_has_its_containers_killed_at_once(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.clock.suspend(3600.0)
    assert Kill(NAME, 3600.0, stale=False) in bench.guard.act()
    bench.until_dead()


def test_what_the_ledger_gave_away_is_killed_at_once(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.site.ledger.nodes.remove("here")
    bench.guard.lookout.look()
    assert bench.guard.act() == [Kill(NAME, 0.0, stale=True)]
    bench.until_dead()


def test_the_only_node_of_a_site_stops_nothing(tmp_path: Path) -> None:
    alone = Bench(tmp_path)
    alone.guard.lookout.look()  # it hears here that it is alone, and says so with the next one
    alone.guard.lookout.look()
    assert expiry(alone.site) == NO_EXPIRY
    alone.site.away = True
    alone.clock.suspend(86_400.0)
    assert alone.guard.act() == [Renew()]
    alone.site.away = False
    another_node(alone.site)
    alone.guard.lookout.look()  # from here on it stops by the clock …
    assert [each.expires for each in alone.guard.lookout.held()] == [True]
    assert expiry(alone.site) == NO_EXPIRY
    alone.guard.lookout.look()  # … and only then its leases expire
    assert expiry(alone.site) < NO_EXPIRY


def test_a_guard_that_is_started_anew_goes_on_counting(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.clock.sleep(500.0)
    after = bench.opened()
    after.away = True
    guard = Guard(after)
    guard.lookout.look()
    assert [each.renewed_s for each in guard.lookout.held()] == [0.0]
    bench.clock.sleep(300.0)
    assert Stop(NAME, 30.0, 800.0) in guard.act()
    bench.until_dead()


def test_a_guard_that_was_dead_for_long_asks_the_ledger_first(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.clock.sleep(5000.0)
    guard = Guard(bench.opened())
    assert guard.act() == [Renew()]
    guard.lookout.look()
    assert guard.act() == []
    assert bench.alive()


def test_what_began_under_no_guard_counts_from_its_start(bench: Bench) -> None:
    bench.clock.sleep(790.0)
    bench.site.away = True
    bench.guard.lookout.look()
    assert [each.renewed_s for each in bench.guard.lookout.held()] == [0.0]


def test_while_the_engine_is_away_leases_are_renewed_all_the_same(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.guard.lookout.look()
    before = expiry(bench.site)
    bench.machine.answers.clear()
    bench.guard.lookout.look()
    assert expiry(bench.site) > before
    assert "goes on to be guarded" in caplog.text
    bench.site.away = True
    bench.clock.sleep(900.0)
    assert Kill(NAME, 900.0, stale=False) in bench.guard.act()
    wait_for(lambda: "tried again" in caplog.text, lambda: caplog.text)
    bench.machine.answers.set()
    wait_for(lambda: bench.guard.act() and not bench.alive(), lambda: "the container lives on")


def test_a_live_flow_keeps_its_lease_before_there_is_a_container(bench: Bench) -> None:
    other = "00000000-0000-4000-8000-000000000002"
    lease = enqueue(bench.site, other)
    bench.guard.lookout.look()
    assert expiry(bench.site, other) == lease.expires_at
    with hold_flow(bench.site.settings.state_dir, other):
        bench.guard.lookout.look()
    assert expiry(bench.site, other) > lease.expires_at


def test_a_run_that_cannot_be_read_is_guarded_like_any_other(bench: Bench) -> None:
    other = "00000000-0000-4000-8000-000000000003"
    bench.site.ledger.runs.enqueue(
        other, {"name": "of another version"}, name="unreadable", owner="me", team="default",
        pool="gpu", priority=0, submitted_at=bench.site.ledger.now(),
    )  # fmt: skip
    demand = Demand(64 * MIB, 0.1)
    admit_in_term(bench.site.ledger, other, "here", demand, ttl_s=900.0)
    bench.engine.create(spec(bench.site, other))
    bench.engine.start(container_name(other, 1))
    bench.guard.lookout.look()
    assert len(bench.guard.lookout.held()) == 2
    assert bench.guard.act() == []


# --- the process, on the real runtimes ---


def said(site: Site) -> str:
    return (site.settings.state_dir / "guard.log").read_text()[-3000:]


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A node of a site of two whose leases last ten seconds, with a container that runs."""
    settings = Settings(
        home=tmp_path / "home", runtime=request.param, node="here", lease_ttl_s=10.0,
        ledger_url=SecretStr(new_ledger()),
    )  # fmt: skip
    image = request.getfixturevalue("busybox_image") if request.param == "docker" else "image:1"
    site = Site(settings, SystemClock())
    join_site(site)
    another_node(site)
    enqueue(site)
    site.runtime.create(replace(spec(site), image=image))
    site.runtime.start(NAME)
    yield site
    site.runtime.remove(NAME)
    site.ledger.close()


def alive(site: Site) -> bool:
    status = site.runtime.inspect(NAME)
    return status is not None and status.state is ContainerState.RUNNING


def until_dead(site: Site) -> None:
    wait_for(lambda: not alive(site), lambda: f"the container lives on: {said(site)}")


def test_a_container_outlives_worker_and_flow_by_ttls(running: Site) -> None:
    """Nobody but the guard is here; afterwards the lease is that of the first grant."""
    first = running.ledger.leases.of_run(RUN)
    assert first is not None
    with guard_process(running) as guard:
        two_ttls = first.expires_at + timedelta(seconds=2 * running.settings.lease_ttl_s)
        wait_for(lambda: expiry(running) > two_ttls, lambda: said(running))
        found = Path(f"/proc/{guard.pid}/status").read_text()
    assert alive(running)
    assert running.ledger.leases.of_run(RUN) == replace(first, expires_at=expiry(running))
    rss_kib = int(found.partition("VmRSS:")[2].split()[0])
    print(f"the guard takes {rss_kib // 1024} MiB")
    assert rss_kib < 120 * 1024, "without Prefect it is half of a worker"


def test_a_container_is_dead_before_its_lease_expires_where_the_ledger_is_away(
    running: Site,
) -> None:
    first = expiry(running)
    with guard_process(running):
        wait_for(lambda: expiry(running) > first, lambda: said(running))
        with psycopg.connect(running.settings.database_url) as locked:
            locked.execute("LOCK TABLE lease")  # nobody else reads or writes it from here on
            row = locked.execute("SELECT expires_at FROM lease").fetchone()
            until_dead(running)
    assert row is not None
    status = running.runtime.inspect(NAME)
    assert status is not None
    assert status.ended_at is not None
    assert status.ended_at < row[0]
    assert "could not be renewed" in read_notes(running.settings.state_dir).stopped[NAME]


def test_a_frozen_node_that_wakes_after_its_place_was_given_away(running: Site) -> None:
    """The whole node: guard and container stand still while the ledger goes on."""
    first = expiry(running)
    with guard_process(running) as guard:
        wait_for(lambda: expiry(running) > first, lambda: said(running))
        with frozen(running, guard.pid):
            margin_s = GuardTimes(running.settings.lease_ttl_s).margin_s
            wait_for(
                lambda: running.ledger.nodes.remove("here", margin_s=margin_s),
                lambda: f"held for {running.ledger.nodes.held_s('here', margin_s)} s",
            )
        until_dead(running)
    assert running.ledger.leases.of_run(RUN) is None


@contextmanager
def frozen(site: Site, guard_pid: int) -> Iterator[None]:
    """Freeze the guard and the container, and wake both."""
    status = site.runtime.inspect(NAME)
    assert status is not None
    pids = [guard_pid, *status.pids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
