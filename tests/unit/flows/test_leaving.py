"""A flow process that is told to leave: where that breaks off what it does."""

import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from prefect.exceptions import TerminationSignal

from flows.leaving import deaf_to_sigterm, sigterm_waits_for_the_ledger

_CALL = """
def call(begin, done):
    begin()
    for _ in range(20):
        time.sleep(0.01)
    done()
"""


@pytest.fixture(autouse=True)
def _as_prefect_does() -> Iterator[None]:
    def leave(number: int, _frame: object) -> None:
        raise TerminationSignal(signal=number)

    before, alarm = signal.signal(signal.SIGTERM, leave), signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGTERM) is leave
    assert signal.getsignal(signal.SIGALRM) is alarm
    signal.signal(signal.SIGTERM, before)


def call_of(module: str) -> list[str]:
    """What a function of *module*, which is sent SIGTERM meanwhile, had done when that came."""
    there: dict[str, Any] = {"__name__": module, "time": time}
    exec(_CALL, there)
    done: list[str] = []
    try:
        with sigterm_waits_for_the_ledger():
            there["call"](
                partial(signal.raise_signal, signal.SIGTERM), partial(done.append, "done")
            )
            time.sleep(5.0)
    except TerminationSignal:
        return done
    raise AssertionError("it never came")


def test_a_call_of_the_ledger_is_done_before_the_signal_comes() -> None:
    assert call_of("headway.ledger.database") == ["done"]


def test_anything_else_is_broken_off() -> None:
    assert call_of("headway.staging.copying") == []


def test_a_signal_that_waits_does_not_come_where_the_process_is_deaf() -> None:
    with sigterm_waits_for_the_ledger():
        before = signal.getsignal(signal.SIGTERM)
        with deaf_to_sigterm():
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            time.sleep(0.1)
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_that_hears_no_signals_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=sigterm_waits_for_the_ledger)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
