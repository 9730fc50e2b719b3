"""Who waits long for a server or a database is told so, once for each call."""

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from headway.errors import LedgerUnreachable
from headway.ledger import Ledger, database
from headway.testing.clock import FakeClock
from headway.waits import LONG_S, Watch, waiting_for


def test_a_call_that_takes_long_is_told_of_once() -> None:
    clock, said = FakeClock(), list[str]()
    watch = Watch(clock, said.append)
    with waiting_for("the server"):
        for _ in range(5):
            watch.look()
            clock.sleep(LONG_S / 5)
        assert said == []
        for _ in range(20):
            watch.look()
            clock.sleep(1.0)
        assert said == ["still waiting for the server …"]
    for _ in range(20):
        with waiting_for("the server"):  # again and again, and each is answered
            watch.look()
            clock.sleep(LONG_S / 2)
    assert len(said) == 1


def test_a_locked_ledger_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said for a minute."""
    monkeypatch.setattr(database, "_BUSY_S", 600.0)
    clock, said = FakeClock(), list[str]()
    watch = Watch(clock, said.append)
    with closing(Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")) as ledger:
        waits = threading.Thread(target=_write, args=(ledger,))
        with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waits.start()
            while not said and waits.is_alive():
                watch.look()
                clock.sleep(1.0)
            other.execute("ROLLBACK")
        waits.join(30)
    assert "still waiting for the ledger at sqlite:///" in said[0]
    assert not waits.is_alive()


def _write(ledger: Ledger) -> None:
    with suppress(LedgerUnreachable):
        ledger.settings.put("a", {})
