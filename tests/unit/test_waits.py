"""Who waits long for a server or a database is told so, once for each call."""

import threading
from contextlib import closing, suppress

import psycopg

from headway.errors import LedgerUnreachable
from headway.ledger import Ledger
from headway.waits import LONG_S, Watch, waiting_for
from tests.ports.clock import FakeClock


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


def test_a_locked_ledger_is_told_of(ledger_url: str) -> None:
    """Nothing was said for a minute."""
    clock, said = FakeClock(), list[str]()
    watch = Watch(clock, said.append)
    with closing(Ledger.open(ledger_url)) as ledger:
        waits = threading.Thread(target=_write, args=(ledger,))
        with psycopg.connect(ledger_url) as other:
            other.execute("LOCK TABLE setting")
            waits.start()
            while not said and waits.is_alive():
                watch.look()
                clock.sleep(1.0)
        waits.join(30)
    assert "still waiting for the ledger at postgresql" in said[0]
    assert not waits.is_alive()


def _write(ledger: Ledger) -> None:
    with suppress(LedgerUnreachable):
        ledger.settings.put("a", {})
