"""Faults of the database and of whoever writes to it: nothing is lost, nothing granted twice."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from headway.errors import LedgerUnreachable
from headway.ledger import Ledger, database
from headway.ledger.errors import LedgerNewer, LedgerOlder
from headway.model.lease import Demand, Lease, Sharing, Wait
from headway.model.node import Capacity, Gpu, HostReading, Node, NodeReading
from headway.model.run import Measurement, RunState
from headway.units import GIB
from tests.support import ledger_faults as faults
from tests.support import lost_answers
from tests.support import postgresql as postgresql_support
from tests.support.fence import fence_of, release
from tests.support.leading import admit_in_term, grant_in_term
from tests.support.on_ledger import enqueue, granted
from tests.support.small_disk import filled, small_disk

KILLS = 15


@pytest.fixture
def _a_busy_machine_is_not_frozen() -> None:
    """It matters here how long a transaction may last."""


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    faults.prepare(ledger)
    return ledger


def test_whoever_writes_may_be_killed_at_any_moment(ledger: Ledger) -> None:
    runs = [f"run-{number}" for number in range(3)]
    for run_id in runs:
        enqueue(ledger, run_id)
    for number in range(KILLS):
        faults.killed_once(ledger, runs, number)
        assert faults.broken(ledger, runs) == []
    faults.bring_to_their_end(ledger, runs, Random(1))


def test_a_claim_killed_at_any_moment_is_whole_or_not_there(ledger: Ledger) -> None:
    for moment in range(10, 41):  # before it only reads, behind it is done
        run_id = f"run-{moment}"
        enqueue(ledger, run_id)
        chance, run = Random(moment), ledger.runs.get(run_id)
        faults.killed_while(ledger, moment, lambda: faults.next_step(ledger, run, chance))  # noqa: B023
        assert faults.broken(ledger, [run_id]) == []
        for node in faults.NODES:
            ledger.leases.release_node(node)


def test_a_submission_killed_before_its_commit_is_handed_in_again_once(
    ledger_url: str, ledger: Ledger
) -> None:
    """Before the commit nothing is there; behind it the run is, and the second hand-in is none."""
    ledger.close()
    for moment in range(1, 8):
        run_id = f"run-{moment}"
        faults.killed_at(ledger_url, moment, lambda own, name=run_id: enqueue(own, name))
        enqueue(ledger, run_id)
        enqueue(ledger, run_id)
        assert [run.run_id for run in ledger.runs.waiting("gpu")].count(run_id) == 1


def test_what_was_committed_and_reported_failed_is_done_once(ledger: Ledger) -> None:
    chance = Random(2)
    with faults.commits_reported_failed(0.2, seed=3) as lost:
        wanted = [lost_answers.carry_out(ledger, f"run-{number}", chance) for number in range(10)]
    assert lost[0] > 20
    assert [amiss for each in wanted for amiss in lost_answers.doubled(ledger, each)] == []
    assert faults.broken(ledger, [each.run_id for each in wanted]) == []


@pytest.fixture
def on_small_disk(postgresql: str, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A disk of its own, and the address of a ledger on it."""
    with (
        small_disk(tmp_path / "disk", 100) as disk,
        postgresql_support.server(disk=str(disk)) as server,
    ):
        yield disk, postgresql_support.new_database(server)


def test_a_device_without_room_loses_nothing_that_was_acknowledged(
    on_small_disk: tuple[Path, str],
) -> None:
    disk, url = on_small_disk
    acknowledged: list[str] = []
    ledger = Ledger.open(url)
    faults.prepare(ledger)
    enqueue(ledger, "held")
    lease = granted(ledger, "held", faults.DEMAND, node=faults.NODES[0])
    with filled(disk):
        with pytest.raises(LedgerUnreachable, match=r"(?i)full|space"):  # noqa: PT012 - one of them
            for number in range(500):
                enqueue(ledger, f"run-{number}")
                acknowledged.append(f"run-{number}")
        assert ledger.leases.of_run("held") == lease, "what is there can still be read"
    assert {run.run_id for run in ledger.runs.waiting("gpu")} == set(acknowledged)
    enqueue(ledger, "afterwards")
    ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=900.0)
    assert faults.broken(ledger, [*acknowledged, "held", "afterwards"]) == []
    ledger.close()


@pytest.mark.postgresql
def test_connections_that_the_server_ends_are_made_anew(postgresql: str) -> None:
    url = postgresql_support.new_database(postgresql)
    ledger = Ledger.open(url)
    faults.prepare(ledger)
    enqueue(ledger, "run")
    lease = granted(ledger, "run", faults.DEMAND, node=faults.NODES[0])
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    for _ in range(2):  # the first may be told that its connection is gone, no later one
        try:
            found = ledger.leases.of_run("run")
            break
        except LedgerUnreachable:
            continue
    assert found == lease
    ledger.close()


def test_who_freezes_in_a_transaction_holds_up_nobody_for_long(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_FROZEN_MS", 3000)
    ledger = Ledger.open(ledger_url)
    faults.prepare(ledger)
    enqueue(ledger, "run")
    frozen = ledger._database.engine.connect()
    frozen.execute(text("SELECT * FROM run FOR UPDATE"))  # and then nothing
    granted(ledger, "run", faults.DEMAND, node=faults.NODES[0])
    with pytest.raises(DBAPIError, match="idle-in-transaction"):
        frozen.execute(text("SELECT 1"))
    frozen.close()
    ledger.close()


class _Stops(list[Any]):
    """Rows of one statement; whoever goes through them is stopped in the middle."""

    def __iter__(self) -> Iterator[Any]:
        rows = super().__iter__()
        yield next(rows)
        os.kill(os.getpid(), signal.SIGSTOP)
        yield from rows


@pytest.mark.parametrize("statement", ["INSERT INTO lease_gpu", "UPDATE lease"])
def test_who_is_stopped_between_rows_holds_up_nobody_for_long(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Of two GPUs, or of the two leases of a gang: a pipeline would hold its rows for ever."""
    monkeypatch.setattr(database, "_FROZEN_MS", 3000)
    with closing(Ledger.open(ledger_url)) as ledger:
        faults.prepare(ledger)
        gpus = tuple(Gpu(f"GPU-{i}", i, "A100", 80 * GIB) for i in range(2))
        node = Node("two", "gpu", Capacity(64.0, 64 * GIB, gpus))
        ledger.nodes.register(node, boot_id="boot", worker_token="worker")
        enqueue(ledger, "stopped")
        enqueue(ledger, "gang")
        grant_in_term(ledger, "gang", "two", Demand(GIB), others=["kills-b"])
        demand = Demand(GIB, gpus=2, gpu_memory_bytes=GIB, sharing=Sharing.WHOLE)

        one, many = psycopg.Cursor.execute, psycopg.Cursor.executemany

        def execute(cursor: Any, sql: Any, *values: Any, **more: Any) -> Any:
            done = one(cursor, sql, *values, **more)
            if str(sql).startswith(statement):
                os.kill(os.getpid(), signal.SIGSTOP)
            return done

        def executemany(cursor: Any, sql: Any, rows: list[Any]) -> None:
            many(cursor, sql, _Stops(rows) if str(sql).startswith(statement) else rows)

        def do() -> None:
            monkeypatch.setattr(psycopg.Cursor, "execute", execute)
            monkeypatch.setattr(psycopg.Cursor, "executemany", executemany)
            if statement.startswith("INSERT"):
                admit_in_term(ledger, "stopped", "two", demand)
            else:
                ledger.leases.release(fence_of(ledger, "gang"))

        with faults.stopped_in(ledger, do):
            assert isinstance(admit_in_term(ledger, "stopped", "two", demand), Lease)
            release(ledger, "gang")
        assert ledger.leases.of_run("gang") is None


@pytest.mark.postgresql
def test_where_no_connection_is_left_the_caller_is_told_and_may_ask_again() -> None:
    if reason := postgresql_support.why_none():
        pytest.skip(reason)
    with postgresql_support.server("-c", "max_connections=8") as server, ExitStack() as stack:
        url = postgresql_support.new_database(server)
        ledger = Ledger.open(url)
        faults.prepare(ledger)
        ledger.close()
        with pytest.raises(psycopg.OperationalError):
            _connect_often(url, stack)
        with pytest.raises(LedgerUnreachable):
            enqueue(ledger, "run")
        stack.pop_all().close()
        enqueue(ledger, "run")
        assert ledger.runs.get("run").state is RunState.WAITING
        ledger.close()


def test_a_schema_newer_than_the_code_is_left_alone(ledger: Ledger, ledger_url: str) -> None:
    """An old worker beside a ledger that was upgraded: it says so and writes nothing."""
    with ledger._database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(LedgerNewer):
        Ledger.open(ledger_url)


def test_an_upgrade_killed_at_any_statement_is_done_by_the_next(empty_database_url: str) -> None:
    """From nothing to the newest tables; each try dies a little later."""
    for moment in (1, 3, 7, 15, 31, 63):
        faults.killed_at(empty_database_url, moment, lambda _: None, migrate=True)
    ledger = Ledger.open(empty_database_url)
    faults.prepare(ledger)
    enqueue(ledger, "run")
    assert ledger.runs.get("run").state is RunState.WAITING
    ledger.close()


def test_an_upgrade_killed_at_any_statement_keeps_live_leases(
    ledger: Ledger, ledger_url: str
) -> None:
    """One run is under way, one is claimed, one waits, one has ended; the tables are of 0006."""
    leases = {}
    for run_id in ("running", "claimed", "ended"):
        enqueue(ledger, run_id)
        leases[run_id] = admit_in_term(
            ledger, run_id, faults.NODES[run_id == "ended"], faults.DEMAND, ttl_s=900.0
        )
    for run_id in ("running", "ended"):
        fence = fence_of(ledger, run_id)
        ledger.leases.take_up(fence)
        ledger.runs.begin(fence, container="c", runtime="process", ttl_s=900.0)
    ledger.runs.finish(fence_of(ledger, "ended"), faults.OK, Measurement())
    release(ledger, "ended")
    enqueue(ledger, "waiting")
    ids = [*leases, "waiting"]
    runs, live = ledger.runs.of(ids), ledger.leases.live()
    ledger.close()
    faults.take_back_to_0006(ledger_url)
    undone = 0
    for moment in range(1, 40, 4):
        faults.killed_at(ledger_url, moment, lambda _: None, migrate=True)
        undone += ledger._database.schema_version() == "0006"
        ledger.close()
    assert undone > 4, "nobody was killed in the midst of it"
    with pytest.raises(LedgerOlder, match=r"at 0006.*`headway upgrade`"):
        Ledger.find(ledger_url)
    after = Ledger.upgrade(ledger_url)
    assert [each.fence for each in after.leases.live()] == [each.fence for each in live]
    assert [each.expires_at for each in after.leases.live()] == [each.expires_at for each in live]
    found = after.runs.of(ids)
    assert {each: found[each].state for each in ids} == {each: runs[each].state for each in ids}
    assert found["ended"].told_end_at is not None, "Prefect would be asked about every old run"
    answer = admit_in_term(after, "waiting", faults.NODES[0], faults.DEMAND)
    assert isinstance(answer, Wait), "two leases were live there, and no more fit"
    after.runs.finish(fence_of(after, "running"), faults.OK, Measurement())
    assert faults.broken(after, ids) == []
    after.close()


def _connect_often(url: str, stack: ExitStack) -> None:
    for _ in range(20):
        stack.enter_context(psycopg.connect(url))


def test_whoever_is_stopped_behind_a_heartbeat_keeps_no_grant_waiting(ledger: Ledger) -> None:
    engine, held = ledger.nodes._database.engine, list[str]()
    address = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    ask = "SELECT name FROM node WHERE name = 'worker-node' FOR UPDATE NOWAIT"

    def look(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("UPDATE node"):
            with psycopg.connect(address) as other:
                held.append(other.execute(ask).statusmessage or "")

    node = Node("worker-node", "gpu", Capacity(4.0, 8 * GIB, ()))
    ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    event.listen(engine, "after_cursor_execute", look)
    reading = NodeReading(ledger.now(), HostReading(4 * GIB, GIB, 0.1, GIB))
    assert ledger.nodes.heartbeat("worker-node", "worker", reading)
    assert held == ["SELECT 1"]
