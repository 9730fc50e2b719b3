"""What the ledger gives to be compared."""

from typing import Any

import pytest
from sqlalchemy import text

from headway.admin.inspection.invariants import look
from headway.ledger import Ledger
from headway.model.inspection import SeenNode, Snapshot
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.units import GIB, MIB
from tests.support import on_ledger
from tests.support.on_ledger import enqueue, join

FIRST, SECOND, THIRD = (f"00000000-0000-4000-8000-00000000000{at}" for at in (1, 2, 3))
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1, ports=(9000,))
JOB = TrainingJob(name="job", image="i:1", command=["true"], stop_grace="25s").document()


@pytest.fixture(autouse=True)
def _has_a_node_and_runs(ledger: Ledger) -> None:
    join(ledger, "here")
    for run_id in (FIRST, SECOND, THIRD):
        enqueue(ledger, run_id, JOB, submitted_at=ledger.now())


def granted(ledger: Ledger, run_id: str) -> Lease:
    return on_ledger.granted(ledger, run_id, DEMAND, node="here")


def execute(ledger: Ledger, sql: str, **values: Any) -> None:
    with ledger._database.engine.begin() as connection:
        connection.execute(text(sql), values)


def found(ledger: Ledger) -> list[str]:
    snapshot = Snapshot(ledger.inspection.read(), SeenNode("elsewhere"))
    return [each.kind.value for each in look(snapshot)]


def test_what_is_live_is_read_with_the_runs_that_it_is_about(ledger: Ledger) -> None:
    lease = granted(ledger, FIRST)
    ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    begun = ledger.leases.of_run(FIRST)
    ledger.runs.finish(
        ledger.runs.get(SECOND).unleased, Exit(ExitKind.CANCELLED, None, "no"), Measurement()
    )
    seen = ledger.inspection.read()
    assert seen.leases == (begun,)
    assert {run_id: run.state for run_id, run in seen.runs.items()} == {
        FIRST: RunState.RUNNING, SECOND: RunState.ENDED, THIRD: RunState.WAITING,
    }  # fmt: skip
    running, ended, waiting = (seen.runs[run_id] for run_id in (FIRST, SECOND, THIRD))
    assert (running.since, running.grace_s) == (ledger.runs.get(FIRST).started_at, 25.0)
    assert (ended.exit_kind, ended.told_at) == (ExitKind.CANCELLED, None)
    assert waiting.since is None
    assert found(ledger) == ["untold"]


def test_the_end_of_the_attempt_before_is_since_when_a_run_waits(ledger: Ledger) -> None:
    lease = granted(ledger, FIRST)
    ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    ledger.runs.requeue(lease.fence, Exit(ExitKind.INFRASTRUCTURE, None, "lost"))
    waiting = ledger.inspection.read().runs[FIRST]
    assert (waiting.attempt, waiting.exit_kind) == (2, None)
    assert waiting.since is not None
    assert found(ledger) == ["lease"]


def test_what_must_not_be_in_the_ledger_is_found(ledger: Ledger) -> None:
    lease = granted(ledger, FIRST)
    assert found(ledger) == []
    execute(ledger, "UPDATE lease SET released_at = granted_at")
    assert found(ledger) == ["no_lease"]
    execute(ledger, "ALTER TABLE lease DISABLE TRIGGER USER")  # it lets none be revived
    execute(ledger, "UPDATE lease SET released_at = NULL, host_memory_bytes = :n", n=65 * GIB)
    assert found(ledger) == ["overcommitted"]
    assert lease.host_memory_bytes == 64 * MIB


@pytest.mark.parametrize("content", ['"no object"', '{"name": "of another version"}'])
def test_a_row_that_cannot_be_read_is_named(ledger: Ledger, content: str) -> None:
    execute(ledger, "UPDATE run SET job = :job WHERE run_id = :id", job=content, id=SECOND)
    (row,) = ledger.inspection.read().unreadable
    assert SECOND in row
    assert "job" in row


def test_a_node_whose_gpus_cannot_be_read_is_named(ledger: Ledger) -> None:
    execute(ledger, "UPDATE node SET gpus = :gpus", gpus='[{"uuid": 3}]')
    assert ledger.inspection.read().unreadable == ("node here, column gpus",)
