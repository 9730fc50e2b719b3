"""What only reads the ledger waits for no writer, and cannot write."""

from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest

from headway.errors import LedgerError
from headway.ledger import Ledger
from headway.ledger.tables import SettingRow
from tests.support.lived_in import ENDED, NODE, RUNNING, populate


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    populate(ledger)
    return ledger


READS: tuple[Callable[[Ledger], object], ...] = (
    lambda ledger: ledger.now(),
    lambda ledger: ledger.runs.find("brave-w1"),
    lambda ledger: ledger.runs.on_node(NODE),
    lambda ledger: ledger.attempts.of_run(ENDED),
    lambda ledger: ledger.leases.live(NODE),
    lambda ledger: ledger.nodes.all(),
    lambda ledger: ledger.pools.snapshot("gpu", {}),
    lambda ledger: ledger.progress.series(RUNNING, 1),
    lambda ledger: ledger.settings.get("policy"),
    lambda ledger: ledger._database.schema_version(),
)


def test_reads_go_on_while_somebody_writes(ledger: Ledger) -> None:
    with ledger._database.transaction() as session:
        session.add(SettingRow(name="held", document={}, updated_at=ledger.now()))
        session.flush()
        for read in READS:
            read(ledger)
        assert ledger.settings.get("held") is None


def test_what_only_reads_cannot_write(ledger: Ledger) -> None:
    moment = ledger.now()
    with (
        pytest.raises(LedgerError, match="INSERT where the ledger is only read"),
        ledger._database.reading() as session,
    ):
        session.add(SettingRow(name="sneaked", document={}, updated_at=moment))
    assert ledger.settings.get("sneaked") is None
    for name in ("a", "b", "c"):  # the connection that only read can be lent to who writes
        assert ledger.settings.put(name, {})


def test_a_database_of_a_machine_without_a_locale_is_read_as_any_other(ledger_url: str) -> None:
    """Its PostgreSQL knows no encoding (SQL_ASCII): what a client does not ask for are bytes."""
    plain = f"{urlsplit(ledger_url).path[1:]}_plain"
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        how = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(f"CREATE DATABASE {plain} {how}".encode())
    with closing(Ledger.open(f"{ledger_url}_plain")) as ledger:
        ledger.settings.put("said", {"name": "Zoë"})
        assert ledger.settings.get("said") == {"name": "Zoë"}
