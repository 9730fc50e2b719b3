"""The janitor on a real ledger and the process runtime, after deaths between two writes."""

import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.run import RESTARTED, Exit, ExitKind, Measurement, RunState
from headway.node.flowlock import hold_flow
from headway.node.frozen import FROZEN_S
from headway.node.janitor import Janitor
from headway.policy.reconcile import FLOW_STARTS_WITHIN_S, MAX_FLOW_STARTS
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.ports.clock import FakeClock
from tests.support.containers import create_container
from tests.support.fence import fence_of, release
from tests.support.leading import admit_in_term, grant_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue
from tests.support.site import wait_for

RUN = "00000000-0000-4000-8000-000000000001"
RANK = "00000000-0000-4000-8000-000000000002"
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    enqueue(site, RUN, TrainingJob(name="job", image="image:1", command=["true"]))
    return site


def admit(site: Site) -> Lease:
    return grant_in_term(site.ledger, RUN, "here", DEMAND)


def mend(site: Site) -> None:
    janitor = Janitor(site)
    janitor.round(janitor.unsettled(), frozenset())


def test_a_run_that_cannot_be_read_keeps_no_other_from_letting_go_of_its_lease(site: Site) -> None:
    """As one that another version of headway put into the ledger."""
    first = "00000000-0000-4000-8000-000000000000"
    site.ledger.runs.enqueue(
        first,
        {"name": "of another version"},
        name="unreadable",
        owner="me",
        team="default",
        pool="gpu",
        priority=0,
        submitted_at=site.ledger.now(),
    )
    lease = admit(site)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    site.ledger.runs.requeue(
        fence_of(site.ledger, RUN), Exit(ExitKind.INFRASTRUCTURE, None, "lost")
    )
    # The process died here, before it could release the lease.
    mend(site)
    assert site.ledger.leases.of_run(RUN) is None
    assert admit(site).attempt == 2


def test_a_run_whose_container_a_restart_of_the_machine_took_along_costs_no_retry(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "boottime_s", lambda _: -3600.0)  # started after all of it
    for attempt in (1, 2, 3):
        lease = admit(site)
        site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
        mend(site)
        record = site.ledger.runs.get(RUN)
        assert (record.state, record.attempt) == (RunState.WAITING, attempt + 1)
    exits = [each.exit for each in site.ledger.attempts.of_run(RUN)]
    assert exits == [Exit(ExitKind.PREEMPTED, None, RESTARTED)] * 3
    lease = admit(site)  # a fourth within the hour is counted as any failure of the site
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    mend(site)
    exit_ = site.ledger.attempts.of_run(RUN)[-1].exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.INFRASTRUCTURE


def test_a_run_on_another_node_is_left_to_its_janitor(site: Site, tmp_path: Path) -> None:
    other = Site(
        Settings(
            home=tmp_path / "other",
            runtime="process",
            node="there",
            ledger_url=site.settings.database_url,
        ),
        SystemClock(),
    )
    join_site(other)
    lease = admit(site)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    site.ledger.runs.requeue(
        fence_of(site.ledger, RUN), Exit(ExitKind.INFRASTRUCTURE, None, "lost")
    )
    mend(other)
    assert site.ledger.leases.of_run(RUN) is not None
    assert site.ledger.runs.get(RUN).state is RunState.WAITING


def use_data(site: Site, run_id: str) -> None:
    site.ledger.staged.record("here", "key", "/data/set", 5, "a" * 64)
    site.ledger.staged.acquire("here", "key", run_id)


def users(site: Site) -> tuple[str, ...]:
    """Runs that use data here; a copy that is not on the disk goes once nobody does."""
    return tuple(run_id for data in site.ledger.staged.list("here") for run_id in data.run_ids)


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_goes_back_to_the_line_lets_go_of_its_data(site: Site, begun: bool) -> None:
    lease = admit(site)
    use_data(site, RUN)
    if begun:
        site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    mend(site)
    assert site.ledger.runs.get(RUN).state is RunState.WAITING
    assert users(site) == ()


def test_data_that_nobody_here_needs_any_more_is_let_go(site: Site) -> None:
    use_data(site, RANK)  # of a ledger before this one
    use_data(site, RUN)
    mend(site)
    assert users(site) == (RUN,)
    site.ledger.nodes.register(
        replace(site.ledger.nodes.all()[0].node, name="there"), boot_id="b", worker_token="w"
    )
    assert isinstance(admit_in_term(site.ledger, RUN, "there", DEMAND), Lease)
    mend(site)
    assert users(site) == ()


def test_a_run_that_is_at_work_here_keeps_its_data(site: Site) -> None:
    use_data(site, RUN)
    site.ledger.runs.finish(fence_of(site.ledger, RUN), Exit(ExitKind.OK, 0, "done"), Measurement())
    with hold_flow(site.settings.state_dir, RUN):  # it cleans up itself
        mend(site)
        assert users(site) == (RUN,)
    mend(site)
    assert users(site) == ()


def test_a_container_that_came_since_the_runs_were_read_stays(site: Site) -> None:
    site.ledger.nodes.register(
        replace(site.ledger.nodes.all()[0].node, name="there"), boot_id="b", worker_token="w"
    )
    grant_in_term(site.ledger, RUN, "there", DEMAND, others=["here"])
    janitor = Janitor(site)
    runs = janitor.unsettled()
    (held,) = site.ledger.leases.untaken(RUN)
    site.ledger.leases.take(held.lease_id, RUN, 1, RANK)
    name = create_container(site, RANK)
    janitor.round(runs, frozenset())
    assert site.runtime.inspect(name) is not None
    release(site.ledger, RANK)
    janitor.round(runs, frozenset())
    assert site.runtime.inspect(name) is None


def test_a_container_of_a_ledger_before_this_one_stops_no_round(site: Site) -> None:
    name = create_container(site, RANK)
    mend(site)
    assert site.runtime.inspect(name) is None


def test_a_run_whose_flow_processes_never_take_it_up_ends_with_the_reason(site: Site) -> None:
    """As one with a parameter that its flow does not have: each process breaks at once."""
    for start in range(1, MAX_FLOW_STARTS + 1):
        assert site.ledger.runs.get(RUN).state is RunState.WAITING
        admit(site)
        assert site.ledger.flow_starts.note(RUN, FLOW_STARTS_WITHIN_S, 180.0) == start
        janitor = Janitor(site)
        janitor.round(janitor.unsettled(), frozenset())
        assert site.ledger.leases.live() == []
    ended = site.ledger.runs.get(RUN).exit
    assert ended is not None
    assert ended.kind is ExitKind.INFRASTRUCTURE
    assert f"{MAX_FLOW_STARTS} flow processes of it died within" in ended.message


HOLDS = """\
import sys, time
from headway.node.flowlock import hold_flow
with hold_flow(*sys.argv[1:]):
    print(flush=True)
    time.sleep(600)
"""


@contextmanager
def flow_process(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """Another process holds the run's lock, and does nothing."""
    command = [sys.executable, "-c", HOLDS, str(site.settings.state_dir), RUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_flow_process_that_hangs_before_it_takes_its_claim_up_is_killed(site: Site) -> None:
    grant_in_term(site.ledger, RUN, "here", DEMAND, start_limit_s=-1.0)
    with flow_process(site) as process:
        process.send_signal(signal.SIGSTOP)
        mend(site)
        assert process.wait(60) == -signal.SIGKILL
    assert site.ledger.runs.get(RUN).state is RunState.WAITING
    assert site.ledger.leases.of_run(RUN) is None


def test_a_flow_process_that_is_frozen_later_is_killed_after_a_minute(site: Site) -> None:
    lease = admit(site)
    site.ledger.leases.take_up(lease.fence)
    clock = site.clock = FakeClock()
    janitor = Janitor(site)

    def round_() -> None:
        janitor.round(janitor.unsettled(), frozenset())

    with flow_process(site) as process:
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, str)
            round_()
            clock.sleep(FROZEN_S - 1.0)
            round_()  # not long enough
            process.send_signal(signal.SIGCONT)
            wait_for(lambda: psutil.Process(process.pid).status() != psutil.STATUS_STOPPED, str)
            round_()  # what it was before does not count
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, str)
        round_()
        clock.sleep(FROZEN_S)
        round_()
        assert process.wait(60) == -signal.SIGKILL
    round_()
    assert site.ledger.runs.get(RUN).state is RunState.WAITING


@pytest.mark.parametrize("starting", [{RUN}, ()], ids=["a start hangs", "not seen yet"])
def test_a_claim_past_its_deadline_goes_back_whatever_the_worker_believes(
    site: Site, starting: Collection[str]
) -> None:
    for limit_s, state in ((600.0, RunState.CLAIMED), (-1.0, RunState.WAITING)):
        lease = grant_in_term(site.ledger, RUN, "here", DEMAND, start_limit_s=limit_s)
        janitor = Janitor(site)
        janitor.round(janitor.unsettled(), frozenset(starting))
        assert site.ledger.runs.get(RUN).state is state
        assert (site.ledger.leases.of_run(RUN) is None) == (state is RunState.WAITING)
        if state is RunState.CLAIMED:
            site.ledger.leases.give_back(lease.fence)


def test_what_ended_before_it_was_taken_up_keeps_no_lease(site: Site) -> None:
    """Nobody begins what has ended, though its claim's deadline is far away."""
    lease = grant_in_term(site.ledger, RUN, "here", DEMAND, start_limit_s=600.0)
    site.ledger.runs.finish(
        lease.fence, Exit(ExitKind.CANCELLED, None, "by its user"), Measurement()
    )
    janitor = Janitor(site)
    janitor.round(janitor.unsettled(), frozenset({RUN}))
    assert site.ledger.leases.of_run(RUN) is None
