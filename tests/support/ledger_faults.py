"""Faults of those who use the ledger: killed at any statement, or told that a commit failed.

What goes on afterwards is what a process does that knows only what the ledger says:
it is the next step of each run, whatever the one before was doing when it died.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event, text
from sqlalchemy.pool import Pool
from sqlmodel import Session

from headway.errors import LedgerUnreachable
from headway.ledger import Ledger
from headway.ledger.database import Database, open_engine
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.units import GIB
from tests.support.fence import fence_of
from tests.support.leading import admit_in_term

NODES = ("kills-a", "kills-b")
CAPACITY = 2
"""Leases that fit on a node."""
ATTEMPTS = 2
STEPS = 1_000
"""More than any run needs to come to its end."""
DEMAND = Demand(6 * GIB)
OK = Exit(ExitKind.OK, 0, "done")
GONE = Exit(ExitKind.INFRASTRUCTURE, None, "its container is gone")
TTL_S = 900.0


def prepare(ledger: Ledger) -> None:
    """Let `NODES` join."""
    for name in NODES:
        node = Node(name, "gpu", Capacity(64.0, 6 * GIB * CAPACITY))
        ledger.nodes.register(node, boot_id="boot", worker_token="worker")


def next_step(ledger: Ledger, run: RunRecord, chance: random.Random) -> None:
    """Do what comes next for *run*, by what the ledger says of it."""
    lease = ledger.leases.of_run(run.run_id)
    before = lease is not None and lease.attempt < run.attempt
    match run.state:
        case RunState.WAITING if lease is not None and before:
            ledger.leases.release(lease.fence)
        case RunState.WAITING:
            admit_in_term(ledger,
                run.run_id, chance.choice(NODES), DEMAND, ttl_s=TTL_S, start_limit_s=0.0,
            )  # fmt: skip
        case RunState.CLAIMED if lease is not None and lease.start_by is not None:
            if chance.random() < 0.3:
                ledger.leases.give_back(lease.fence)  # its deadline has passed
            else:
                ledger.leases.take_up(lease.fence)
        case RunState.CLAIMED if lease is not None:
            ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
        case RunState.RUNNING:
            fence = fence_of(ledger, run.run_id)
            if run.attempt < ATTEMPTS and chance.random() < 0.3:
                ledger.runs.requeue(fence, GONE)
            else:
                ledger.runs.finish(fence, OK, Measurement())
        case RunState.ENDED if lease is not None:
            ledger.leases.release(lease.fence)
        case RunState.ENDED if run.told_end_at is None:
            ledger.runs.told(run.run_id, run.attempt)


def is_over(ledger: Ledger, run: RunRecord) -> bool:
    """Whether nothing is left to do for it."""
    told = run.state is RunState.ENDED and run.told_end_at is not None
    return told and ledger.leases.of_run(run.run_id) is None


def broken(ledger: Ledger, run_ids: list[str]) -> list[str]:
    """Which promises the ledger breaks now."""
    found = []
    live = ledger.leases.live()
    for node in NODES:
        held = sum(lease.node == node for lease in live)
        if held > CAPACITY:
            found.append(f"overcommitted: {held} leases on {node}")
    records = ledger.runs.of(run_ids)
    found += [f"lost: {run_id}" for run_id in run_ids if run_id not in records]
    for run_id, run in records.items():
        own = [lease for lease in live if lease.run_id == run_id]
        found += _amiss(run, own)
        attempts = [each.attempt for each in ledger.attempts.of_run(run_id)]
        if attempts != sorted(set(attempts)) or any(each > run.attempt for each in attempts):
            found.append(f"attempts: {run_id} has {attempts} at attempt {run.attempt}")
    return found


def _amiss(run: RunRecord, own: list[Lease]) -> list[str]:
    if len(own) > 1:
        return [f"twice: {len(own)} leases of {run.run_id}"]
    attempt = own[0].attempt if own else None
    granted = run.state in (RunState.CLAIMED, RunState.RUNNING)
    if granted and attempt != run.attempt:
        return [f"no lease: {run.run_id} is {run.state} with a lease of attempt {attempt}"]
    if run.state is RunState.WAITING and attempt is not None and attempt >= run.attempt:
        return [f"a lease of {run.run_id}, which waits"]
    return []


def die_at(moment: int) -> None:
    """Kill this process at its *moment*-th one: around each statement, at each commit."""
    left = [moment]

    def passed(*_: object) -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, name, passed)
    event.listen(Pool, "checkin", passed)


def killed_at(
    url: str, moment: int, do: Callable[[Ledger], object], *, migrate: bool = False
) -> None:
    """*do* something with the ledger in a process of its own, killed at its *moment*-th moment.

    With *migrate* opening the ledger counts too. A process that is done before dies then.
    """

    def open_and_do() -> None:
        if migrate:
            die_at(moment)
        ledger = Ledger.upgrade(url) if migrate else Ledger.open(url)
        if not migrate:
            die_at(moment)
        do(ledger)

    _in_a_process_that_is_killed(open_and_do)


def killed_while(ledger: Ledger, moment: int, do: Callable[[], object]) -> None:
    """*do* something with this *ledger* in a process that is killed at its *moment*-th moment.

    The process has the statements that were compiled before the fork: half of its time would
    go into compiling them again.
    """
    ledger.close()  # no connection may be open over a fork

    def begin() -> None:
        die_at(moment)
        do()

    _in_a_process_that_is_killed(begin)


def killed_once(ledger: Ledger, run_ids: list[str], seed: int) -> None:
    """Let a process go on with the runs, killed at a random moment."""
    chance = random.Random(seed)

    def go_on() -> None:
        while True:
            records = list(ledger.runs.of(run_ids).values())
            chance.shuffle(records)
            for run in records:
                next_step(ledger, run, chance)

    killed_while(ledger, chance.randint(1, 120), go_on)


def _in_a_process_that_is_killed(do: Callable[[], None]) -> None:
    os.waitpid(_forked(do), 0)


def _forked(do: Callable[[], object]) -> int:
    """A process that does *do* and kills itself at its end."""
    pid = os.fork()
    if pid == 0:
        try:
            do()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return pid


@contextmanager
def stopped_in(ledger: Ledger, do: Callable[[], object]) -> Iterator[None]:
    """*do* something with this *ledger* in a process that stops itself; it stays stopped inside."""
    ledger.close()  # no connection may be open over a fork
    pid = _forked(do)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def bring_to_their_end(ledger: Ledger, run_ids: list[str], chance: random.Random) -> None:
    """Go on with the runs until nothing is left to do; what was lost would keep it from that."""
    for _ in range(STEPS * len(run_ids)):
        left = [run for run in map(ledger.runs.get, run_ids) if not is_over(ledger, run)]
        if not left:
            return
        next_step(ledger, left[0], chance)
    raise AssertionError(f"these runs come to no end: {left}")


def lose_answers(share: float, seed: int) -> list[int]:
    """From now on, report so large a share of what was committed as failed; how many, so far."""
    chance, lost, original = random.Random(seed), [0], Database.transaction

    @contextmanager
    def transaction(self: Database) -> Iterator[Session]:
        with original(self) as session:
            yield session
        if chance.random() < share:
            lost[0] += 1
            raise LedgerUnreachable("the ledger", "the answer was lost after the commit")

    Database.transaction = transaction  # type: ignore[method-assign]
    return lost


_ADDED = {
    "lease": ("start_by", "lent", "term"),
    "run": (
        "told_end_at", "suspended_at", "flow_starts", "flow_starts_since", "tag", "promised_at",
        "array_index", "array_id", "after_run_id", "after_when", "ready_attempt", "place",
        "rows_removed_at", "queue_version"),
    "node": ("identity", "files_url", "files_certificate", "ports", "gpu_drains"),
    "standing": ("phase", "iteration", "epoch", "total", "per_s"),
    "trace": ("team",),
    "lease_port": ("program_port",),
    "telemetry": (
        "sm_frac", "tensor_frac", "bandwidth_frac",
        "clock_frac", "power_limited_frac", "heat_limited_frac"),
}  # fmt: skip
"""The columns that the migrations from 0007 on add to the tables of before."""


def take_back_to_0006(url: str) -> None:
    """Give the ledger the tables that the version before 0007 has left, with all its rows."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for table in (
            "notice", "access_token", "audit", "team_uids", "stored", "start_forecast", "job_array",
            "code", "code_chunk", "submission", "staging", "upload", "gang_ask", "leader",
            "node_login", "node_key", "node_token", "engine_pool",
        ):  # fmt: skip
            connection.execute(text(f"DROP TABLE {table}"))
        policies = text("SELECT policyname, tablename FROM pg_policies")
        for policy, table in connection.execute(policies).all():
            connection.execute(text(f"DROP POLICY {policy} ON {table}"))
        own = "SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        for function in connection.scalars(text(own)).all():
            connection.execute(text(f"DROP FUNCTION {function} CASCADE"))
        connection.execute(text("DROP INDEX run_by_submission"))
        connection.execute(text("DROP INDEX run_by_told_end"))
        connection.execute(text("DROP INDEX one_run_per_member"))
        connection.execute(text("DROP INDEX run_with_its_rows"))
        connection.execute(text("DROP INDEX leases_of_node_by_end"))
        for table, columns in _ADDED.items():
            for column in columns:
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0006'"))
    engine.dispose()


@contextmanager
def commits_reported_failed(share: float, seed: int) -> Iterator[list[int]]:
    """The same for a while."""
    original = Database.transaction
    try:
        yield lose_answers(share, seed)
    finally:
        Database.transaction = original  # type: ignore[method-assign]
