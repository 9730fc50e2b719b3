"""Who leads a pool: one at a time, whoever dies, freezes or asks at the same moment."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlmodel import Session

from headway.errors import LedgerError, LedgerUnreachable
from headway.ledger import Ledger
from headway.ledger.errors import TermOver
from headway.ledger.leaders import _go_on, in_term
from headway.ledger.tables import LeaderRow
from headway.model.lease import Demand, Lease
from headway.model.term import Leader, Term
from headway.units import GIB
from tests.support.on_ledger import enqueue, join

OLD_WORKERS_GRANT = text(
    "INSERT INTO lease (run_id, attempt, node, token, host_memory_bytes, cpus, disk_bytes,"
    " granted_at, expires_at, lent, gang_rank) VALUES (:run, 1, 'node-a', 'token', 1, 1, 0,"
    " CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, false, :rank)"
)


@pytest.fixture
def _a_busy_machine_is_not_frozen() -> None:
    """It matters here how long a transaction may last."""


def contend(ledger: Ledger, node: str, after_s: float = 0.0, holder: str = "") -> Leader:
    return ledger.leaders.contend(
        "gpu", node, holder or f"worker of {node}", ttl_s=10.0, after_s=after_s
    )


def silent(ledger: Ledger, for_s: float) -> None:
    """As if the leader had not been heard of for so long."""
    with ledger._database.transaction() as session:
        session.get_one(LeaderRow, "gpu").expires_at -= timedelta(seconds=for_s)


def write(ledger: Ledger, term: Term) -> None:
    with ledger._database.transaction() as session:
        in_term(session, term)


def test_the_first_leads_until_it_is_silent(ledger: Ledger) -> None:
    assert ledger.leaders.of("gpu") is None
    first = contend(ledger, "a")
    assert (first.node, first.term) == ("a", Term("gpu", 1))
    assert 9.0 < first.left_s <= 10.0
    assert contend(ledger, "b").node == "a"
    silent(ledger, 9.0)
    assert contend(ledger, "b").node == "a"
    assert contend(ledger, "a").left_s > 9.0
    silent(ledger, 11.0)
    second = contend(ledger, "b")
    assert (second.node, second.term) == ("b", Term("gpu", 2))
    assert contend(ledger, "a").node == "b"


def test_a_pool_has_its_own(ledger: Ledger) -> None:
    contend(ledger, "a")
    other = ledger.leaders.contend("cpu", "b", "worker", ttl_s=10.0)
    assert (other.node, other.term.number) == ("b", 1)


def test_for_a_pool_that_nobody_leads_the_leader_of_the_first_one_answers(ledger: Ledger) -> None:
    contend(ledger, "a")
    for pool in ("fast", "slow"):
        ledger.leaders.contend(pool, "b", "scheduler of b", ttl_s=10.0)
    assert ledger.leaders.unled("fast") == []
    silent(ledger, 60.0)  # another may take its place still
    assert ledger.leaders.unled("fast") == []
    silent(ledger, 11.0)
    assert ledger.leaders.unled("fast") == ["gpu"]
    assert ledger.leaders.unled("slow") == []
    contend(ledger, "a")
    assert ledger.leaders.unled("fast") == []


def test_what_is_written_in_a_term_that_is_over_is_refused(ledger: Ledger) -> None:
    first = contend(ledger, "a").term
    write(ledger, first)
    silent(ledger, 3600.0)
    write(ledger, first)  # nobody has taken it
    second = contend(ledger, "b").term
    with pytest.raises(TermOver) as refused:
        write(ledger, first)
    assert (refused.value.pool, refused.value.number, refused.value.now) == ("gpu", 1, 2)
    write(ledger, second)
    with pytest.raises(TermOver):
        write(ledger, Term("nobody's", 1))


def test_a_worker_that_is_started_anew_leads_at_once_in_a_term_of_its_own(ledger: Ledger) -> None:
    before = contend(ledger, "a").term
    after = contend(ledger, "a", holder="another worker of a")
    assert (after.node, after.term.number) == ("a", before.number + 1)
    with pytest.raises(TermOver):  # the earlier one, which is frozen say
        write(ledger, before)


def test_who_does_not_reach_prefect_leaves_it_to_others_for_a_while(ledger: Ledger) -> None:
    contend(ledger, "a")
    silent(ledger, 5.0)
    assert contend(ledger, "a", after_s=10.0).left_s < 5.0  # not renewed
    silent(ledger, 6.0)
    assert contend(ledger, "a", after_s=10.0).node == "a"  # still: nobody else wants it
    assert contend(ledger, "c", after_s=10.0).node == "a"
    silent(ledger, 10.0)
    assert contend(ledger, "c", after_s=10.0).node == "c"  # nobody reaches it


def test_of_many_that_contend_at_once_one_leads(ledger: Ledger) -> None:
    for _ in range(5):
        at_once = threading.Barrier(4)

        def go(node: str, at_once: threading.Barrier = at_once) -> Leader:
            at_once.wait()
            return contend(ledger, node)

        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(go, "abcd"))
        assert len({leader.term for leader in found}) == 1, found
        silent(ledger, 3600.0)


def test_a_term_does_not_end_in_the_middle_of_a_write(ledger: Ledger) -> None:
    term = contend(ledger, "a").term
    silent(ledger, 3600.0)
    done = threading.Event()

    def take() -> None:
        contend(ledger, "b")
        done.set()

    thread = threading.Thread(target=take)
    with ledger._database.transaction() as session:
        in_term(session, term)
        thread.start()
        assert not done.wait(0.3)
    thread.join(20)
    assert done.is_set()


def test_who_is_stopped_while_it_holds_the_row_keeps_nobody_from_leading(ledger: Ledger) -> None:
    """It would hold the row for as long as other transactions may last in silence."""
    limit = text("SELECT current_setting('idle_in_transaction_session_timeout')")

    def stop(holds: Callable[[Session], object], other: str) -> None:
        with ledger._database.transaction() as session:
            assert holds(session) is not False
            assert session.execute(limit).scalar_one() == "6s"
            assert contend(ledger, other).node == other
            session.execute(limit)  # it goes on

    term = contend(ledger, "a").term
    silent(ledger, 3600.0)
    with pytest.raises(LedgerUnreachable):
        stop(lambda session: in_term(session, term), "b")
    with pytest.raises(LedgerUnreachable):  # in the renewal of each second
        stop(lambda session: _go_on(session, "gpu", "worker of b", 0.5) is not None, "c")
    with ledger._database.transaction() as session:
        assert session.execute(limit).scalar_one() == "15s"


def test_a_lease_without_the_term_of_its_pools_leader_is_refused(ledger: Ledger) -> None:
    """A worker of a version before, which still runs, grants for itself and names no term."""
    join(ledger)
    enqueue(ledger, "a")

    def refused(rank: int) -> bool:
        with (
            pytest.raises(LedgerError, match="a lease on node-a in term 0"),
            ledger._database.transaction() as session,
        ):
            session.execute(OLD_WORKERS_GRANT, {"run": "a", "rank": rank})
        return ledger.leases.live() == []

    assert refused(rank=0)  # nobody has led the pool yet
    first = contend(ledger, "a").term
    other_pool = ledger.leaders.contend("cpu", "b", "worker", ttl_s=10.0).term
    assert refused(rank=0)
    assert refused(rank=1)
    silent(ledger, 3600.0)
    second = contend(ledger, "b").term
    with pytest.raises(TermOver):
        ledger.leases.admit("a", "node-a", Demand(GIB), term=first, ttl_s=60.0)
    with pytest.raises(LedgerError, match="a lease on node-a in term 1, where the term is 2"):
        ledger.leases.admit("a", "node-a", Demand(GIB), term=other_pool, ttl_s=60.0)
    lease = ledger.leases.admit("a", "node-a", Demand(GIB), term=second, ttl_s=60.0)
    assert isinstance(lease, Lease)
