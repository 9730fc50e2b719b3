"""How many connections to the database a process keeps: a server has some hundred for all."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import text

from headway.clock import SystemClock
from headway.ledger import Ledger
from headway.ledger.database import _BRIEF_S, Connections, Database
from headway.waits import until

THREADS = 8
HELD = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")


def count(database: Database) -> int:
    with database.reading() as session:
        return int(session.execute(HELD).scalar_one())


@pytest.mark.parametrize(("keep", "most"), [(Connections.ONE, 1), (Connections.BRIEF, 0)])
def test_of_what_many_threads_used_a_process_keeps_what_its_kind_may(
    ledger_url: str, keep: Connections, most: int
) -> None:
    Ledger.open(ledger_url).close()
    at_once = threading.Barrier(THREADS)
    with (
        closing(Ledger.find(ledger_url, keep)) as ledger,
        closing(Ledger.find(ledger_url)) as other,
    ):

        def ask(_: int) -> int:
            with ledger._database.reading() as session:
                found = int(session.execute(HELD).scalar_one())
                at_once.wait(20)
                return found

        def kept() -> int:
            return count(other._database) - 1  # which has one itself

        with ledger._database.reading() as session:  # one that goes on while others rest
            session.execute(HELD)
            count(ledger._database)
            SystemClock().sleep(2 * _BRIEF_S)
        for _ in range(2):  # one that closed all goes on
            with ThreadPoolExecutor(THREADS) as threads:
                assert max(threads.map(ask, range(THREADS))) > 1 + most
            assert until(lambda: kept() <= most, SystemClock(), 20.0, 0.1), kept()
