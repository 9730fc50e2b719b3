"""A gang's head and its parts on a real ledger, without Prefect: who hears what of whom."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from prefect.client.schemas.objects import StateType
from sqlmodel import update

from flows.rank import run_part
from headway.clock import SystemClock
from headway.errors import LeaseLost
from headway.leader.ranks import start_ranks
from headway.ledger.tables import LeaseRow, NodeRow
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.launch import Launch
from headway.model.lease import Demand, Lease, Resource, Wait
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.policy.gang_end import TAKE_WITHIN_S, why_stop
from headway.policy.guard import GuardTimes
from headway.run.attempt import Attempt
from headway.run.followed import Followed
from headway.run.rendezvous import (
    Meeting,
    other_ranks,
    wait_for_head,
    wait_for_ranks,
    why_end,
    why_leave,
)
from headway.runtime.port import ContainerState, ContainerStatus
from headway.scheduler.reconciler import Reconciler
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.support.fence import fence_of, release
from tests.support.leading import grant_in_term, term_of
from tests.support.postgresql import with_ledger
from tests.support.queued import claim, enqueue

GANG = "00000000-0000-4000-8000-000000000001"
RANK = "00000000-0000-4000-8000-000000000002"
JOB = TrainingJob(
    name="gang",
    image="image:1",
    command=["true"],
    resources=Resources(nodes=3, host_memory="64MiB", cpus=0.1),
)
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1)
FAILED = Exit(ExitKind.FAILED, 1, "exit 1")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="head"), SystemClock())
    join_site(site)
    for name in ("one", "two"):
        node = replace(site.ledger.nodes.all()[0].node, name=name)
        site.ledger.nodes.register(node, boot_id="b", worker_token="w")
    return site


@pytest.fixture
def attempt(site: Site, request: pytest.FixtureRequest) -> Attempt:
    """Of `JOB`, or of the test's parameter."""
    job = getattr(request, "param", JOB)
    enqueue(site, GANG, job)
    lease = grant_in_term(site.ledger, GANG, "head", DEMAND, others=["one", "two"])
    attempt = Attempt(site, GANG)
    meeting = attempt.meet(lease)
    assert meeting is not None
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    return attempt


def take(site: Site, rank: int = 1, run_id: str = RANK) -> Lease:
    held = next(one for one in site.ledger.leases.untaken(GANG) if one.gang_rank == rank)
    return site.ledger.leases.take(held.lease_id, GANG, 1, run_id)


def heard(attempt: Attempt) -> list[tuple[int, str, bool]]:
    assert attempt.meeting is not None
    ranks = other_ranks(attempt.site, attempt.meeting)
    return [(rank.number, rank.node, rank.begun) for rank in ranks]


def test_rank_0_hears_of_every_rank_whatever_became_of_its_lease(
    site: Site, attempt: Attempt
) -> None:
    assert heard(attempt) == [(1, "one", False), (2, "two", False)]
    take(site)
    assert heard(attempt) == [(1, "one", True), (2, "two", False)]
    # Rank 0's node was cut off, and the scheduler gave up what nobody renewed.
    assert site.ledger.leases.release_untaken("gpu", -61.0) == [GANG]
    assert [number for number, _, _ in heard(attempt)] == [1, 2]
    assert attempt.meeting is not None
    ranks = other_ranks(site, attempt.meeting)
    assert why_stop(ranks, TAKE_WITHIN_S) is None
    stopped = why_stop(ranks, TAKE_WITHIN_S + 1)
    assert stopped is not None
    assert stopped.message.startswith("rank 2 on a node that gave it up has not begun")


def test_a_rank_leaves_when_its_gang_is_over(site: Site, attempt: Attempt) -> None:
    take(site)
    assert attempt.meeting is not None
    meeting = replace(attempt.meeting, rank=1)
    assert why_leave(site, meeting) is None
    site.ledger.runs.finish(
        fence_of(site.ledger, GANG), Exit(ExitKind.OK, 0, "done"), Measurement()
    )
    left = why_leave(site, meeting)
    assert left is not None
    assert left.kind is ExitKind.OK


def test_a_gang_whose_claim_was_given_back_waits_for_the_plan(site: Site) -> None:
    enqueue(site, GANG, JOB)
    answer = Attempt(site, GANG).admit()
    assert isinstance(answer, Wait)
    assert answer.resource is Resource.TURN
    assert site.ledger.leases.live() == []


def ended(code: int) -> Followed:
    at = datetime.now(UTC)
    status = ContainerStatus("c", GANG, 1, ContainerState.EXITED, code, started_at=at, ended_at=at)
    return Followed(status, timed_out=False, runtime_s=1.0, log_tail="", gpu_use=None)


def test_a_gang_stopped_for_another_run_goes_on_later_also_when_rank_0_obeyed_with_exit_0(
    site: Site, attempt: Attempt
) -> None:
    take(site)
    site.ledger.runs.preempt(fence_of(site.ledger, GANG), GANG, term_of(site))
    site.ledger.runs.finish(fence_of(site.ledger, RANK), FAILED, Measurement())
    exit_, _ = attempt.settle(ended(0))
    assert exit_.kind is ExitKind.PREEMPTED
    assert site.ledger.runs.get(GANG).state is RunState.WAITING


def test_a_gang_ends_as_the_rank_that_failed(site: Site, attempt: Attempt) -> None:
    take(site)
    site.ledger.runs.finish(fence_of(site.ledger, RANK), FAILED, Measurement())
    exit_, _ = attempt.settle(ended(0))
    assert (exit_.kind, exit_.message) == (ExitKind.FAILED, "rank 1 on one: exit 1")
    assert site.ledger.runs.get(GANG).state is RunState.ENDED


def unheard(site: Site, node: str, *, renewed_s: float) -> None:
    """Nothing was heard of *node* for an hour, but that its guard renewed leases then."""
    ago = site.ledger.now() - timedelta(hours=1)
    expires = site.ledger.now() + timedelta(seconds=site.settings.lease_ttl_s - renewed_s)
    with site.ledger.leases._database.transaction() as session:
        session.exec(update(NodeRow).where(NodeRow.name == node).values(heartbeat_at=ago))
        session.exec(update(LeaseRow).where(LeaseRow.node == node).values(expires_at=expires))


def test_a_rank_whose_node_is_gone_is_quiet_long_before_its_lease_expires(
    site: Site, attempt: Attempt
) -> None:
    take(site)
    unheard(site, "one", renewed_s=40.0)
    assert attempt.meeting is not None
    rank = other_ranks(site, attempt.meeting)[0]
    assert rank.silent_s == 0.0
    assert 40.0 <= rank.quiet_s < 60.0


def test_a_gang_whose_leader_is_lost_starts_anew_without_a_person(
    site: Site, attempt: Attempt
) -> None:
    """Once its lease expired so long ago that nothing runs there; the scheduler sees to it."""
    rank = take(site)
    other = Site(site.settings.model_copy(update={"node": "two"}), SystemClock())
    ttl_s = site.settings.lease_ttl_s
    margin_s = GuardTimes(ttl_s).margin_s
    unheard(site, "head", renewed_s=ttl_s + margin_s - 20)
    Reconciler(other).unsettled()
    assert site.ledger.runs.get(GANG).state is RunState.RUNNING
    unheard(site, "head", renewed_s=ttl_s + margin_s + 1)
    Reconciler(other).unsettled()
    gang = site.ledger.runs.get(GANG)
    assert (gang.state, gang.attempt) == (RunState.WAITING, 2)
    assert "node head, where rank 0 ran, is lost" in gang.reason
    assert [lease.run_id for lease in site.ledger.leases.live()] == [RANK]
    # What its part does when it is told, and what its leader may when it wakes up.
    left = why_leave(site, Meeting(GANG, 1, "", 0, 1, 3))
    assert left is not None
    assert left.kind is ExitKind.CANCELLED
    with pytest.raises(LeaseLost):
        attempt.end(FAILED)
    Reconciler(other).unsettled()
    assert site.ledger.runs.get(GANG).attempt == 2
    assert rank.run_id == RANK


@pytest.mark.parametrize("attempt", [JOB.model_copy(update={"retries": 0})], indirect=True)
def test_a_gang_whose_leader_is_lost_and_has_no_retry_left_ends_and_others_say_so(
    site: Site, attempt: Attempt
) -> None:
    """It would stay as running for Prefect, and hold its place, until somebody removes the node."""
    take(site)
    other = Site(site.settings.model_copy(update={"node": "two"}), SystemClock())
    margin_s = GuardTimes(site.settings.lease_ttl_s).margin_s
    unheard(site, "head", renewed_s=site.settings.lease_ttl_s + margin_s + 1)
    untold = site.ledger.runs.untold([site.settings.pool], "", 10)
    assert untold == []
    assert site.ledger.gang_asks.ask(attempt.fence, "a", 1, "true")
    Reconciler(other).unsettled()
    assert site.ledger.gang_asks.of(GANG, 1) == []
    gang = site.ledger.runs.get(GANG)
    assert gang.state is RunState.ENDED
    assert gang.exit is not None
    assert gang.exit.kind is ExitKind.INFRASTRUCTURE
    assert "start anew" not in gang.exit.message
    assert [lease.run_id for lease in site.ledger.leases.live()] == [RANK]
    untold = site.ledger.runs.untold([site.settings.pool], "", 10)
    assert [each.run_id for each in untold] == [GANG]


def test_a_run_on_one_lost_node_waits_for_an_operator(site: Site) -> None:
    alone = JOB.model_copy(update={"resources": Resources(host_memory="64MiB", cpus=0.1)})
    lease = claim(site, GANG, alone)
    assert isinstance(lease, Lease)
    unheard(site, "head", renewed_s=10 * site.settings.lease_ttl_s)
    other = Site(site.settings.model_copy(update={"node": "two"}), SystemClock())
    Reconciler(other).unsettled()
    assert [each.node for each in site.ledger.leases.live()] == ["head"]


def test_the_end_for_which_rank_0_was_stopped_is_explained_too(
    site: Site, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 failed for want of rank 2, whose node is gone: all start anew."""
    take(site)
    take(site, 2, "00000000-0000-4000-8000-000000000003")
    site.ledger.runs.finish(fence_of(site.ledger, RANK), FAILED, Measurement())
    unheard(site, "two", renewed_s=100.0)
    assert attempt.meeting is not None
    stopped = why_end(site, attempt.meeting)
    assert stopped == Exit(ExitKind.FAILED, 1, "rank 1 on one: exit 1")
    monkeypatch.setattr("headway.policy.gang_end.BLAME_WITHIN_S", 0.0)
    exit_, _ = attempt.settle(replace(ended(143), cancellation=stopped))
    assert exit_.kind is ExitKind.INFRASTRUCTURE
    assert exit_.message.startswith("rank 2 on two is lost: not heard of for 1")
    assert site.ledger.runs.get(GANG).state is RunState.WAITING


class NoRanks:
    """In the place of `PrefectPool`: keeps what it is asked to make; the first time it is away."""

    def __init__(self) -> None:
        self.away = True
        self.made: list[tuple[str, str, dict[str, Any]]] = []

    async def make_run(self, parameters: dict[str, Any], **more: Any) -> str:
        if self.away:
            raise httpx.ConnectError("nobody listens")
        self.made.append((more["queue"], more["key"], parameters))
        return f"run of {more['key']}"


def test_each_rank_that_is_held_and_has_not_begun_is_started_on_its_node(
    site: Site, attempt: Attempt
) -> None:
    """Again where Prefect was away: its key gives one run however often it is asked."""
    first, second = site.ledger.leases.untaken(GANG)
    prefect = NoRanks()
    asyncio.run(start_ranks(site, cast("Any", prefect)))
    assert prefect.made == []
    prefect.away = False
    site.ledger.calls.wait(second.node, 0.0)  # listens from here on
    asyncio.run(start_ranks(site, cast("Any", prefect)))
    assert [(node, asked["lease"]) for node, _, asked in prefect.made] == [
        ("one", first.lease_id), ("two", second.lease_id),
    ]  # fmt: skip
    assert site.ledger.calls.wait(second.node, 20.0) == [f"run of {prefect.made[1][1]} rank"]
    assert prefect.made[0][2] == {
        "gang": GANG, "attempt": 1, "lease": first.lease_id, "number": 1, "nodes": 3,
    }  # fmt: skip
    take(site)
    asyncio.run(start_ranks(site, cast("Any", prefect)))
    assert [node for node, _, _ in prefect.made[2:]] == ["two"]
    release(site.ledger, GANG)
    asyncio.run(start_ranks(site, cast("Any", prefect)))
    assert len(prefect.made) == 3
    site.ledger.calls.close()


def test_memory_that_ran_out_below_a_launcher_is_why_the_gang_failed(
    site: Site, attempt: Attempt
) -> None:
    """What serves rank 0's launcher in another container lives on, and so does that container."""
    lease, asks = take(site), site.ledger.gang_asks
    take(site, 2, "00000000-0000-4000-8000-000000000003")
    attempt.job = attempt.job.model_copy(update={"launch": Launch.MPI})
    assert asks.ask(attempt.fence, "a", 1, "orted")
    (ask,) = asks.of(GANG, 1)
    asks.ended(lease.fence, ask.ask_id, 0, ran_out=True)  # orted says nothing of it
    exit_, _ = attempt.settle(ended(137))
    assert exit_.kind is ExitKind.OUT_OF_MEMORY
    assert exit_.message.startswith("rank 1 on one: one of its processes was killed")
    assert site.ledger.runs.get(GANG).state is RunState.WAITING, "it is tried again, with more"


class Steps(SystemClock):
    """Does one of *then* in each sleep; fails when there is none left."""

    def __init__(self, *then: Callable[[], object]) -> None:
        self.then = list(then)

    def sleep(self, seconds: float) -> None:
        assert self.then, "it waits for ever"
        self.then.pop(0)()


def test_rank_0_waits_until_all_are_ready_and_names_those_that_are_not(
    site: Site, attempt: Attempt
) -> None:
    first, second = take(site), take(site, 2, "00000000-0000-4000-8000-000000000003")
    ready = site.ledger.runs.ready
    site.clock = Steps(lambda: ready(second.fence), lambda: None, lambda: ready(first.fence))
    said: list[str] = []
    assert attempt.meeting is not None
    stopped = wait_for_ranks(
        site, attempt.meeting, lambda late: said.append(", ".join(each.who for each in late))
    )
    assert stopped is None
    assert site.clock.then == []
    assert said == ["rank 1 on one, rank 2 on two", "rank 1 on one"]


def test_a_rank_waits_until_rank_0_runs_and_is_told_where(site: Site, attempt: Attempt) -> None:
    take(site)
    fence = fence_of(site.ledger, GANG)
    site.clock = Steps(
        lambda: site.ledger.runs.ready(fence),
        lambda: site.ledger.runs.placed(fence, "fd00::2:29500"),
    )
    said: list[str] = []
    part = Meeting(GANG, 1, "", 0, 1, 3)
    found = wait_for_head(site, part, lambda late: said.extend(each.who for each in late))
    assert isinstance(found, Meeting)
    assert said == ["rank 0 on head"]
    assert (found.address, found.port) == ("fd00::2", 29500)
    # What an earlier attempt said counts no more.
    site.ledger.runs.requeue(fence, Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    left = wait_for_head(site, part, lambda late: said.extend(each.who for each in late))
    assert isinstance(left, Exit)
    assert left.message == "stopped with its gang: see the run of rank 0"
    assert not site.ledger.runs.get(GANG).is_ready


def test_a_gang_whose_part_ends_before_the_start_does_not_start(
    site: Site, attempt: Attempt
) -> None:
    take(site)
    refused = Exit(ExitKind.REFUSED, None, "its data is not there")
    site.ledger.runs.finish(fence_of(site.ledger, RANK), refused, Measurement())
    assert attempt.meeting is not None
    stopped = wait_for_ranks(site, attempt.meeting, lambda late: None)
    assert stopped == Exit(ExitKind.REFUSED, None, "rank 1 on one: its data is not there")


def test_a_database_that_is_away_for_a_moment_ends_no_rank(tmp_path: Path) -> None:
    away = Settings(home=tmp_path, node="one", ledger_url="postgresql://127.0.0.1:9/headway")
    meeting = Meeting(GANG, 1, "127.0.0.1", 29500, 1, 2)
    state = run_part(Site(away, SystemClock()), RANK, 1, meeting)
    assert (state.type, state.name) == (StateType.SCHEDULED, "AwaitingRetry")


def test_a_rank_whose_grant_is_gone_says_so(site: Site, attempt: Attempt) -> None:
    assert attempt.meeting is not None
    (first, _) = site.ledger.leases.untaken(GANG)
    release(site.ledger, GANG)
    state = run_part(site, RANK, first.lease_id, replace(attempt.meeting, rank=1))
    assert state.type is StateType.FAILED
    assert (state.message or "").startswith("nothing is held for this part any more: attempt 1 of")
