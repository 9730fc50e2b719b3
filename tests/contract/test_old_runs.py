"""Rows of runs that ended long ago: what goes, what stays, and whose."""

from datetime import UTC, datetime, timedelta

import pytest

from headway.ledger import Ledger
from headway.ledger.tables import RunRow
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Demand
from headway.model.node import Capacity, Gpu, Node
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, StepState
from headway.units import GIB
from tests.support.fence import release
from tests.support.on_ledger import NOON, enqueue, granted

SOON = datetime(2900, 1, 1, tzinfo=UTC)
OK = Exit(ExitKind.OK, 0, "done")


@pytest.fixture(autouse=True)
def _has_two_nodes(ledger: Ledger) -> None:
    for name in ("here", "there"):
        gpus = (Gpu(f"GPU-{name}", 0, "V100", 16 * GIB),)
        node = Node(name, "gpu", Capacity(4.0, 32 * GIB, gpus))
        ledger.nodes.register(node, boot_id="boot", worker_token="worker")


def ended(
    ledger: Ledger, run_id: str, *, node: str = "here", team: str = "t", told: bool = True
) -> None:
    """A run of which there are rows everywhere, and that has ended and left."""
    enqueue(ledger, run_id, team=team)
    demand = Demand(GIB, gpus=1, gpu_memory_bytes=GIB)
    fence = granted(ledger, run_id, demand, node=node).fence
    ledger.steps.started(fence, "train")
    ledger.runs.begin(fence, container="c", runtime="process", ttl_s=60.0)
    ledger.progress.append(fence, [ProgressPoint(1.0, 1)], first=0)
    ledger.progress_snapshots.keep(fence, ProgressSnapshot(run_id, 1, ledger.now(), 1.0))
    ledger.steps.ended(fence, "train", StepState.DONE)
    ledger.runs.finish(fence, OK, Measurement(runtime_s=1.0))
    release(ledger, run_id)
    if told:
        assert ledger.runs.told(run_id, 1)


def due(ledger: Ledger, **of_teams: datetime) -> list[str]:
    return ledger.old_runs.due("here", "gpu", None if of_teams else SOON, of_teams, 10)


def test_the_course_goes_and_what_was_used_stays(ledger: Ledger) -> None:
    ended(ledger, "old")
    ended(ledger, "new")
    before = ledger.holdings.between(NOON, SOON)
    assert due(ledger) == ["old", "new"]
    ledger.old_runs.remove(["old"])
    ledger.old_runs.remove(["old"])
    assert due(ledger) == ["new"]
    assert ledger.holdings.between(NOON, SOON) == before
    assert len(before) == 2
    assert ledger.runs.get("old").exit == OK
    assert len(ledger.attempts.of_run("old")) == 1
    assert ledger.steps.of_run("old") == []
    assert ledger.progress.series("old", 1) == []
    assert ledger.progress_snapshots.of(["old", "new"]).keys() == {"new"}
    assert len(ledger.steps.of_run("new")) == len(ledger.progress.series("new", 1)) == 1


def test_a_node_answers_for_its_own_and_for_those_of_nobody(ledger: Ledger) -> None:
    ended(ledger, "a")
    ended(ledger, "b", node="there")
    assert due(ledger) == ["a"]
    with ledger._database.transaction() as session:
        row = session.get(RunRow, "b")
        assert row is not None
        row.node = None
    assert due(ledger) == ["a", "b"]


def test_who_is_not_done_with_stays(ledger: Ledger) -> None:
    ended(ledger, "untold", told=False)
    ended(ledger, "stored")
    ledger.stored.add("stored", 1, "t/stored", files=1, size_bytes=1)
    enqueue(ledger, "waits")
    assert due(ledger) == []
    ledger.old_runs.remove(["waits"])
    assert [run.run_id for run in ledger.runs.waiting("gpu")] == ["waits"]
    ledger.stored.removed("stored", 1)
    assert due(ledger) == ["stored"]


def test_a_team_may_keep_less_than_the_node(ledger: Ledger) -> None:
    ended(ledger, "ours", team="ours")
    ended(ledger, "theirs", team="theirs")
    assert due(ledger, ours=SOON) == ["ours"]
    assert due(ledger, ours=ledger.now() - timedelta(days=1)) == []
    assert ledger.old_runs.due("here", "gpu", None, {}, 10) == []
