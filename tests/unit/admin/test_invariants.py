"""Each broken situation, built as values, is found and called what it is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headway.admin.inspection.invariants import confirmed, look
from headway.model.inspection import (
    Finding,
    Kind,
    SeenContainer,
    SeenLedger,
    SeenNode,
    SeenRun,
    SeenState,
    Snapshot,
)
from headway.model.lease import GpuGrant, Lease, Sharing
from headway.model.node import Capacity, Gpu, Node, Reserve
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState
from headway.units import GIB

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
RUN, OTHER = "run-1", "run-2"
GPU = Gpu("GPU-1", 0, "NVIDIA H200", 100 * GIB, reserve_bytes=2 * GIB)
NODE = Node("here", "gpu", Capacity(8.0, 64 * GIB, (GPU,)), Reserve(1.0, 4 * GIB))
THERE = replace(NODE, name="there")
LEASE = Lease(
    7, RUN, 1, "here", "token", GIB, 1.0, (), {}, granted_at=LONG_AGO, expires_at=LONG_AGO
)  # fmt: skip
RUNNING = SeenRun(RUN, "job", RunState.RUNNING, 1, "here", LONG_AGO)
ENDED = replace(RUNNING, state=RunState.ENDED, exit_kind=ExitKind.OK, told_at=LONG_AGO)
WAITING = replace(RUNNING, state=RunState.WAITING, attempt=2)
CONTAINER = SeenContainer("headway-run-1-1", RUN, 1, live=True, since=LONG_AGO)


def seen(
    *runs: SeenRun,
    leases: tuple[Lease, ...] = (),
    containers: tuple[SeenContainer, ...] | None = (),
    flows: tuple[str, ...] = (),
    prefect: dict[str, PrefectView] | None = None,
    **ledger: object,
) -> Snapshot:
    known = {run.run_id: run for run in runs}
    return Snapshot(
        SeenLedger(NOW, (NODE, THERE), leases, known, **ledger),  # type: ignore[arg-type]
        SeenNode("here", containers, frozenset(flows)),
        {run_id: SeenState(view, LONG_AGO) for run_id, view in (prefect or {}).items()},
    )


def healthy() -> Snapshot:
    """A run at work, one that waits, one that has ended, and all that belongs to them."""
    waiting = replace(WAITING, run_id=OTHER)
    ended = replace(ENDED, run_id="run-3")
    return seen(
        RUNNING, waiting, ended,
        leases=(LEASE,),
        containers=(CONTAINER,),
        flows=(RUN, "of-another-flow"),
        prefect={
            RUN: PrefectView.ACTIVE, OTHER: PrefectView.SCHEDULED, "run-3": PrefectView.COMPLETED,
        },
    )  # fmt: skip


def test_nothing_is_found_where_all_agrees() -> None:
    assert look(healthy()) == []


BROKEN = {
    "a lease of an ended run": (seen(ENDED, leases=(LEASE,)), Kind.LEASE),
    "a lease of a run that waits": (
        seen(replace(WAITING, attempt=1), leases=(LEASE,)), Kind.LEASE),
    "a lease of an older attempt": (seen(WAITING, leases=(LEASE,)), Kind.LEASE),
    "a lease of no run": (seen(leases=(LEASE,)), Kind.LEASE),
    "a lease of a run on another node": (
        seen(replace(RUNNING, node="there"), leases=(LEASE,)), Kind.LEASE),
    "a lease on a node that was removed": (
        seen(RUNNING, leases=(replace(LEASE, node="gone"),), flows=(RUN,)), Kind.LEASE),
    "a part of a gang whose run waits": (
        seen(WAITING, leases=(replace(LEASE, gang_rank=1),)), Kind.LEASE),
    "a granted run without a lease": (
        seen(RUNNING, flows=(RUN,)), Kind.NO_LEASE),
    "a run without container and flow": (seen(RUNNING, leases=(LEASE,)), Kind.NO_PROCESS),
    "a claim past its deadline": (
        seen(replace(RUNNING, state=RunState.CLAIMED),
             leases=(replace(LEASE, start_by=LONG_AGO),)), Kind.CLAIM),
    "too much host memory promised": (
        seen(RUNNING, flows=(RUN,), leases=(replace(LEASE, host_memory_bytes=61 * GIB),)),
        Kind.OVERCOMMITTED),
    "too many CPUs promised": (
        seen(RUNNING, flows=(RUN,), leases=(replace(LEASE, cpus=7.5),)), Kind.OVERCOMMITTED),
    "too much of a GPU promised": (
        seen(RUNNING, flows=(RUN,),
             leases=(replace(LEASE, gpus=(GpuGrant("GPU-1", 99 * GIB),)),)), Kind.OVERCOMMITTED),
    "a container without a lease": (seen(ENDED, containers=(CONTAINER,)), Kind.CONTAINER),
    "a container of no run": (seen(containers=(CONTAINER,)), Kind.CONTAINER),
    "a flow process of an ended run": (seen(ENDED, flows=(RUN,)), Kind.FLOW),
    "a flow process of a run elsewhere": (
        seen(replace(RUNNING, node="there"), leases=(replace(LEASE, node="there"),), flows=(RUN,)),
        Kind.FLOW),
    "an end that Prefect was not told": (seen(replace(ENDED, told_at=None)), Kind.UNTOLD),
    "an end that Prefect has otherwise": (
        seen(ENDED, prefect={RUN: PrefectView.CRASHED}), Kind.PREFECT),
    "an ended run that its user wants again": (
        seen(ENDED, prefect={RUN: PrefectView.SCHEDULED}), Kind.PREFECT),
    "a running run that Prefect has ended": (
        seen(RUNNING, leases=(LEASE,), flows=(RUN,), prefect={RUN: PrefectView.CANCELLED}),
        Kind.PREFECT),
    "a waiting run that Prefect has running": (
        seen(WAITING, prefect={RUN: PrefectView.ACTIVE}), Kind.PREFECT),
    "a row that cannot be read": (seen(unreadable=("run run-1, column job",)), Kind.UNREADABLE),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_thing_is_found_and_called_broken(name: str) -> None:
    snapshot, kind = BROKEN[name]
    (found,) = look(snapshot)
    assert (found.kind, found.under_way) == (kind, False)
    assert found.what
    assert found.mends


@pytest.mark.parametrize(
    ("node", "mends"),
    [("here", "the janitor of here"), ("gone", "node remove"), (None, "cancel it")],
)
def test_who_mends_a_granted_run_without_a_lease_can_mend_it(node: str | None, mends: str) -> None:
    (found,) = look(seen(replace(RUNNING, node=node), flows=(RUN,) if node == "here" else ()))
    assert mends in found.mends


def test_a_lease_of_an_older_attempt_is_none_of_the_run_at_work() -> None:
    again = replace(RUNNING, attempt=2)
    kinds = {each.kind for each in look(seen(again, leases=(LEASE,), flows=(RUN,)))}
    assert kinds == {Kind.LEASE, Kind.NO_LEASE}


def test_a_run_that_is_alive_twice_is_found() -> None:
    both = (CONTAINER, replace(CONTAINER, name="headway-run-1-2", attempt=2))
    kinds = {each.kind for each in look(seen(WAITING, leases=(LEASE,), containers=both))}
    assert Kind.TWICE in kinds


def test_a_whole_gpu_may_be_promised_with_its_reserve() -> None:
    whole = replace(LEASE, gpus=(GpuGrant("GPU-1", 100 * GIB, Sharing.WHOLE),))
    assert look(seen(RUNNING, flows=(RUN,), leases=(whole,))) == []


@pytest.mark.parametrize(("age_s", "under_way"), [(59, True), (61, False)])
def test_what_is_young_is_merely_under_way(age_s: float, *, under_way: bool) -> None:
    ended = replace(ENDED, since=NOW - timedelta(seconds=age_s))
    (found,) = look(seen(ended, leases=(LEASE,)))
    assert found.under_way is under_way


def test_a_program_has_its_grace_to_end() -> None:
    ended = replace(ENDED, since=NOW - timedelta(seconds=100), grace_s=50.0)
    assert [each.under_way for each in look(seen(ended, containers=(CONTAINER,)))] == [True]


def test_nothing_is_said_of_containers_that_were_not_seen() -> None:
    assert look(seen(RUNNING, leases=(LEASE,), containers=None)) == []


def test_nothing_is_said_of_states_that_were_not_seen() -> None:
    assert look(seen(ENDED, prefect={RUN: PrefectView.UNKNOWN})) == []
    assert look(seen(ENDED, prefect={RUN: PrefectView.MISSING})) == []


def test_a_suspended_run_may_be_paused_in_prefect() -> None:
    paused = {RUN: PrefectView.PAUSED}
    assert look(seen(replace(WAITING, suspended=True), prefect=paused)) == []
    assert len(look(seen(WAITING, prefect=paused))) == 1


def test_only_what_was_there_before_is_broken() -> None:
    def finding(subject: str, *, under_way: bool = False) -> Finding:
        return Finding(Kind.LEASE, subject, "what", None, "mends", under_way)

    now = [finding("stays"), finding("new"), finding("young", under_way=True)]
    assert confirmed([finding("stays"), finding("gone")], now) == [now[0], now[2]]
