"""What users ask of a run through Prefect, done on a real ledger by scheduler and janitor.

Whether or not a flow process is there, and whatever Prefect said before.
"""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.errors import SiteRefused
from headway.gateway.actions import cancel_in_ledger
from headway.ledger.audit_log import Act
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.prefect_view import PrefectView
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.node.flowlock import hold_flow
from headway.node.janitor import Janitor
from headway.policy.agree import ON_PREFECT, Change, Said
from headway.prefect.client import PrefectServer
from headway.runtime.port import ContainerState
from headway.scheduler import reconciler as reconciler_module
from headway.scheduler.reconciler import Mending, PrefectRun, Reconciler
from headway.scheduler.told_ends import PAGE_EVERY_S
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from headway.views.queue_document import line_views
from headway.views.run_document import ledger_state
from tests.ports.clock import FakeClock
from tests.support.api import cut_off
from tests.support.containers import create_container
from tests.support.fence import fence_of, release
from tests.support.leading import grant_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue
from tests.support.site import within_this_process

RUN = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1)
JOB = TrainingJob(name="job", image="image:1", command=["true"], stop_grace="20s")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(reconciler_module, "_TELLS_ITSELF", timedelta(0))
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    enqueue(site, RUN, JOB)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


def begin(site: Site, run_id: str = RUN) -> str:
    """Grant the run and start it; the name of its container, whose program ignores SIGTERM."""
    lease = grant_in_term(site.ledger, run_id, "here", DEMAND)
    name = create_container(site, run_id, command=STUBBORN)
    site.ledger.runs.begin(lease.fence, container=name, runtime="process", ttl_s=60.0)
    site.runtime.start(name)
    return name


@pytest.mark.parametrize("view", [PrefectView.ACTIVE, PrefectView.FAILED, PrefectView.PAUSED])
def test_an_acknowledged_end_that_was_overwritten_is_told_again_though_nobody_heard_of_it(
    site: Site, view: PrefectView
) -> None:
    site.ledger.runs.finish(fence_of(site.ledger, RUN), Exit(ExitKind.OK, 0, "done"), Measurement())
    site.ledger.runs.told(RUN, 1)
    clock = site.clock = FakeClock()
    reconciler = Reconciler(site)

    def found() -> list[Change]:
        runs = reconciler.unsettled()
        return [each.change for each in reconciler.round(runs, {RUN: PrefectRun(view)})]

    assert found() == [Change.SET_FINAL]
    assert found() == []  # it is asked about once a minute, no more
    clock.sleep(PAGE_EVERY_S)
    assert found() == [Change.SET_FINAL]


STUBBORN = ("python3", "-c", "import signal, time; signal.signal(15, lambda *_: 0); time.sleep(60)")


def is_running(site: Site, run_id: str) -> bool:
    status = site.runtime.inspect(f"headway-{run_id}-1")
    return status is not None and status.state is ContainerState.RUNNING


def look(site: Site, janitor: Janitor, view: PrefectView, *called: str) -> list[Mending]:
    """What the scheduler does, to which Prefect says *view* of all runs; then the node."""
    reconciler, said = Reconciler(site), PrefectRun(view, state_id="seen")
    runs = reconciler.unsettled(called)
    done = reconciler.round(runs, {run.run_id: said for run in runs})
    janitor.round(janitor.unsettled(called), frozenset())
    return [each for each in done if each.change in ON_PREFECT]


def test_who_cancelled_is_told_though_prefects_own_state_comes_first(site: Site) -> None:
    site.ledger.audit_log.write(Act("ada", "run.cancel", RUN))
    look(site, Janitor(site), PrefectView.CANCELLED)
    end = site.ledger.runs.get(RUN).exit
    assert end is not None
    assert end.message == "cancelled by user ada (gateway)"


@pytest.mark.parametrize("alive", [True, False])
def test_a_cancel_is_in_the_ledger_at_once_and_no_grace_time_holds_up_others(
    site: Site, alive: bool
) -> None:
    begin(site)
    janitor = Janitor(site)
    if alive:
        with hold_flow(site.settings.state_dir, RUN):
            look(site, janitor, PrefectView.CANCELLING)
    else:
        look(site, janitor, PrefectView.CANCELLING)
    run = site.ledger.runs.get(RUN)
    assert run.exit is not None
    assert run.exit.kind is ExitKind.CANCELLED
    assert is_running(site, RUN)
    assert site.ledger.leases.of_run(RUN) is not None  # as long as its container may live
    enqueue(site, OTHER, JOB)
    begin(site, OTHER)  # and the next round does not wait for it
    look(site, janitor, PrefectView.CANCELLING)
    other = site.ledger.runs.get(OTHER)
    assert other.state is RunState.ENDED
    assert is_running(site, OTHER)
    for name in (RUN, OTHER):
        site.runtime.stop(f"headway-{name}-1", 0.0)
    janitor.wait_for_stops()
    assert look(site, janitor, PrefectView.CANCELLING) == []
    assert site.ledger.leases.of_run(RUN) is None
    assert site.runtime.containers() == []
    told = look(site, janitor, PrefectView.CANCELLING)
    assert {each.change for each in told} == {Change.SET_FINAL}
    assert look(site, janitor, PrefectView.CANCELLED) == []
    assert site.ledger.runs.get(RUN).told_end_at is not None


@pytest.mark.parametrize("view", [PrefectView.CANCELLED, PrefectView.FAILED])
def test_a_flow_process_that_copies_data_is_told_that_somebody_has_ended_its_run(
    site: Site, view: PrefectView
) -> None:
    grant_in_term(site.ledger, RUN, "here", DEMAND)
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        with hold_flow(site.settings.state_dir, RUN):
            look(site, Janitor(site), view)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert site.ledger.runs.get(RUN).state is RunState.ENDED
    assert told == [signal.SIGTERM]


@pytest.mark.parametrize("held", ["", "here", "before"], ids=["waits", "runs", "holds the last"])
def test_a_cancel_needs_no_prefect_server(site: Site, held: str) -> None:
    """Its command ends the run in the ledger; the janitor stops what runs, and asks nobody."""
    if held:
        begin(site)
    if held == "before":
        lost = Exit(ExitKind.INFRASTRUCTURE, None, "gone")
        site.ledger.runs.requeue(fence_of(site.ledger, RUN), lost)
    with cut_off(site) as env:
        done = within_this_process(("cancel", "job", "--json"), env)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["run_id"], said["state"], said["told"]) == (RUN, "Cancelling", False)
    run = site.ledger.runs.get(RUN)
    assert run.exit is not None
    assert run.exit.kind is ExitKind.CANCELLED
    assert run.exit.message.startswith("cancelled by user root")
    janitor = Janitor(site)
    look(site, janitor, PrefectView.UNKNOWN)
    site.runtime.stop(f"headway-{RUN}-1", 0.0)
    janitor.wait_for_stops()
    look(site, janitor, PrefectView.UNKNOWN)
    assert site.ledger.leases.of_run(RUN) is None
    assert site.runtime.containers() == []
    (mending,) = look(site, janitor, PrefectView.SCHEDULED)
    assert mending.change is Change.SET_FINAL
    with cut_off(site) as env:
        again = within_this_process(("cancel", "job"), env)
    assert "it had ended before, nothing was cancelled" in again.stdout


def test_who_may_not_ask_prefect_cancels_nothing_in_the_ledger(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(server: PrefectServer, *_: object) -> None:
        raise SiteRefused(server.api_url, "HTTP 401")

    monkeypatch.setattr(PrefectServer, "cancel", refuse)
    with cut_off(site) as env:
        done = within_this_process(("cancel", RUN), env)
    assert done.returncode == 3, done.stdout
    assert "refuses this auth string" in done.stderr
    assert site.ledger.runs.get(RUN).state is RunState.WAITING


def test_a_cancel_that_a_grant_comes_before_is_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, looks = site.ledger.leases, []

    def granted_behind_the_look(run_id: str) -> Lease | None:
        lease = of_run(run_id)
        if not looks:
            begin(site)
        looks.append(lease)
        return lease

    of_run = leases.of_run
    monkeypatch.setattr(leases, "of_run", granted_behind_the_look)
    assert cancel_in_ledger(site.ledger, RUN, "").kind is ExitKind.CANCELLED
    assert (len(looks), looks[0]) == (2, None)
    assert site.ledger.runs.get(RUN).state is RunState.ENDED
    site.runtime.stop(f"headway-{RUN}-1", 0.0)


def test_an_end_whose_flow_was_killed_is_told_until_prefect_was_seen_to_say_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = grant_in_term(site.ledger, RUN, "here", DEMAND)
    site.ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, "done"), Measurement())
    checkpoint = site.settings.runs_dir / RUN / "checkpoint"
    checkpoint.mkdir(parents=True)
    janitor = Janitor(site)
    assert look(site, janitor, PrefectView.CRASHED) == []  # its node cleans up first
    assert site.ledger.leases.of_run(RUN) is None
    assert not checkpoint.exists()
    monkeypatch.setattr(reconciler_module, "_TELLS_ITSELF", timedelta(minutes=10))
    assert look(site, janitor, PrefectView.CRASHED) == []  # a flow process would do it itself
    monkeypatch.setattr(reconciler_module, "_TELLS_ITSELF", timedelta(0))
    for _ in range(2):  # the first write may have been lost
        (mending,) = look(site, janitor, PrefectView.CRASHED)
        assert (mending.change, mending.run.run_id) == (Change.SET_FINAL, RUN)
    look(site, janitor, PrefectView.COMPLETED)
    assert site.ledger.runs.get(RUN).told_end_at is not None


def test_a_retry_is_one_attempt_however_often_it_is_seen(site: Site) -> None:
    failed = Exit(ExitKind.TIMED_OUT, None, "")
    site.ledger.runs.finish(fence_of(site.ledger, RUN), failed, Measurement())
    checkpoint = site.settings.runs_dir / RUN / "checkpoint"
    checkpoint.mkdir(parents=True)
    janitor = Janitor(site)
    look(site, janitor, PrefectView.FAILED)
    seen = site.ledger.runs.get(RUN)
    for each in (Reconciler(site), Reconciler(site)):
        each.round([seen], {RUN: PrefectRun(PrefectView.SCHEDULED)})
    run = site.ledger.runs.get(RUN)
    assert (run.state, run.attempt, run.told_end_at) == (RunState.WAITING, 2, None)
    assert checkpoint.exists()


def test_runs_of_a_pool_that_nobody_leads_are_told_by_another_scheduler(site: Site) -> None:
    """As those of a pool whose last node was removed: who cancels one would never hear of it."""
    site.ledger.runs.finish(fence_of(site.ledger, RUN), Exit(ExitKind.OK, 0, "done"), Measurement())
    enqueue(site, OTHER, JOB)
    now = PrefectRun(PrefectView.CANCELLED)
    for pool, ttl_s in (("gpu", -61.0), ("away", 60.0)):
        site.ledger.leaders.contend(pool, f"node of {pool}", "scheduler", ttl_s=ttl_s)
    away = Reconciler(site.of_pool("away"))
    away.round(away.unsettled(), {RUN: now, OTHER: now})
    assert site.ledger.runs.get(OTHER).state is RunState.ENDED
    told = away.round(away.unsettled(), {RUN: now, OTHER: now})
    assert {each.change for each in told} == {Change.SET_FINAL, Change.NOTE_TOLD}


@pytest.mark.parametrize("since_s", [-1, 1])
def test_a_retry_that_comes_before_its_end_was_noted_is_not_lost(site: Site, since_s: int) -> None:
    """One from before the end was for the attempt that has ended, as by a cancel of a run."""
    failed = Exit(ExitKind.FAILED, 1, "")
    site.ledger.runs.finish(fence_of(site.ledger, RUN), failed, Measurement())
    run = site.ledger.runs.get(RUN)
    assert run.ended_at is not None
    pressed_at = run.ended_at + timedelta(seconds=since_s)
    seen = PrefectRun(PrefectView.SCHEDULED, retried_at=pressed_at)
    (done,) = Reconciler(site).round([run], {RUN: seen})
    assert done.change is (Change.RETRY if since_s > 0 else Change.SET_FINAL)
    assert site.ledger.runs.get(RUN).attempt == (2 if since_s > 0 else 1)


def test_a_suspended_run_is_left_out_until_it_is_resumed(site: Site) -> None:
    name = begin(site)
    janitor = Janitor(site)
    (told,) = look(site, janitor, PrefectView.PAUSED)
    assert told.change is Change.SET_SUSPENDED
    site.runtime.stop(name, 0.0)
    janitor.wait_for_stops()
    look(site, janitor, PrefectView.SUSPENDED)
    run = site.ledger.runs.get(RUN)
    assert (run.state, run.attempt, run.preemptions) == (RunState.WAITING, 2, 1)
    assert site.ledger.leases.of_run(RUN) is None
    assert RUN not in waiting(site)
    assert line_views(site) == []
    assert ledger_state(run) == "Suspended"
    assert look(site, janitor, PrefectView.SUSPENDED) == []
    look(site, janitor, PrefectView.SCHEDULED)
    assert RUN in waiting(site)


def waiting(site: Site) -> set[str]:
    return set(site.ledger.pools.snapshot("gpu", {}).waiting)


def test_what_another_node_has_is_left_alone_though_its_old_container_is_here(site: Site) -> None:
    """As on a node that was taken out of the site and came back: attempt 2 runs elsewhere."""
    site.ledger.nodes.register(
        replace(site.ledger.nodes.all()[0].node, name="there"),
        boot_id="b",
        worker_token="w",
        identity="i",
    )
    name = begin(site)
    site.ledger.runs.requeue(fence_of(site.ledger, RUN), Exit(ExitKind.INFRASTRUCTURE, None, ""))
    release(site.ledger, RUN)
    site.runtime.stop(name, 0.0)
    there = grant_in_term(site.ledger, RUN, "there", DEMAND)
    site.ledger.runs.begin(there.fence, container="c", runtime="process", ttl_s=60.0)
    begun = site.ledger.leases.of_run(RUN)
    look(site, Janitor(site), PrefectView.ACTIVE, RUN)
    run = site.ledger.runs.get(RUN)
    assert (run.state, run.attempt, run.node) == (RunState.RUNNING, 2, "there")
    assert site.ledger.leases.of_run(RUN) == begun
    assert site.runtime.inspect(name) is None


def test_nothing_is_decided_about_a_run_that_moved_on_since_it_was_read(site: Site) -> None:
    janitor = Janitor(site)
    runs = janitor.unsettled()
    begin(site)
    assert janitor.round(runs, frozenset()) == []
    assert site.ledger.runs.get(RUN).state is RunState.RUNNING


def test_a_run_that_breaks_the_reconciler_stops_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(site, OTHER, JOB)
    decided: list[Said] = []

    def decide(said: Said) -> tuple[Change, ...]:
        decided.append(said)
        if len(decided) == 1:
            raise ValueError("what nobody foresaw")
        return (Change.END_CANCELLED,)

    monkeypatch.setattr(reconciler_module, "agree", decide)
    look(site, Janitor(site), PrefectView.CANCELLED)
    states = [site.ledger.runs.get(run_id).state for run_id in (RUN, OTHER)]
    assert sorted(states) == [RunState.ENDED, RunState.WAITING]
