"""A flow leaves with the state that the ledger says, whoever has written it there meanwhile."""

from pathlib import Path

import pytest
from prefect.exceptions import Abort

from flows.leaving import is_over, state_of
from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement
from headway.run.attempt import Attempt
from headway.scheduler.reconciler import SUSPENDED
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from headway.worker.states import ended
from tests.support.fence import release
from tests.support.leading import grant_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue

RUN = "00000000-0000-4000-8000-000000000001"
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1)
JOB = TrainingJob(name="job", image="image:1", command=["true"])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    return site


@pytest.fixture
def attempt(site: Site) -> Attempt:
    """A run's first attempt, which holds a lease."""
    enqueue(site, RUN, JOB)
    grant(site)
    return Attempt(site, RUN)


def grant(site: Site) -> Lease:
    return grant_in_term(site.ledger, RUN, "here", DEMAND)


@pytest.mark.parametrize("kind", list(ExitKind))
def test_the_end_in_the_ledger_is_the_state_to_leave_with(attempt: Attempt, kind: ExitKind) -> None:
    """Also where the program itself has ended well, in the moment in which it was cancelled."""
    exit_ = Exit(kind, None, "how it ended")
    attempt.site.ledger.runs.finish(attempt.fence, exit_, Measurement())
    state = state_of(attempt.site, RUN, "it went well")
    assert (state.type, state.name) == (ended(exit_).type, ended(exit_).name)
    assert state.message == ("it went well" if kind is ExitKind.OK else "how it ended")


def test_a_run_that_waits_again_is_claimable_again(attempt: Attempt) -> None:
    attempt.site.ledger.runs.requeue(attempt.fence, Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    assert state_of(attempt.site, RUN, "lost").is_scheduled()


def test_the_state_of_a_run_that_was_suspended_or_taken_is_left_as_it_is(attempt: Attempt) -> None:
    site = attempt.site
    site.ledger.runs.suspend(attempt.fence, SUSPENDED)
    with pytest.raises(Abort):
        state_of(site, RUN, "its container has ended")
    site.ledger.runs.resume(RUN)
    release(site.ledger, RUN)
    grant(site)  # its second attempt runs, here or on another node
    with pytest.raises(Abort):
        state_of(site, RUN, "attempt 1 woke up")


def test_a_process_that_is_told_to_leave_ends_only_what_is_its_own_no_longer(
    attempt: Attempt,
) -> None:
    assert not is_over(attempt)
    attempt.site.ledger.runs.suspend(attempt.fence, SUSPENDED)
    assert is_over(attempt)
