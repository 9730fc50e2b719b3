"""How a flow process leaves: with the state that the ledger says, whoever wrote it there."""

import signal
import threading
from contextlib import ExitStack
from traceback import walk_stack
from types import FrameType
from typing import Any

from prefect.client.schemas.objects import State
from prefect.exceptions import Abort
from prefect.states import Completed, Scheduled

from headway.errors import LedgerUnreachable
from headway.model.run import GRANTED, ExitKind, RunState
from headway.run.attempt import Attempt
from headway.site import Site
from headway.worker.states import ended

_AGAIN_S = 0.05


def state_of(site: Site, run_id: str, words: str) -> State[Any]:
    """The state that the ledger calls for now, with *words* where it goes well or goes on.

    Raises:
        Abort: The run is suspended, or another attempt has it; or the ledger does not tell.
    """
    try:
        run = site.ledger.runs.get(run_id)
    except LedgerUnreachable as error:
        raise Abort(f"left to the janitor: {error}") from error
    if run.exit is not None:
        return Completed(message=words) if run.exit.kind is ExitKind.OK else ended(run.exit)
    if run.state is RunState.WAITING and run.suspended_at is None:
        return Scheduled(name="AwaitingRetry", message=words)
    raise Abort(f"the run is no longer this process's: {words}")


def deaf_to_sigterm() -> ExitStack:
    """SIGTERM does nothing from now on, until the stack that is returned is closed.

    When the ledger has how a run ended, a signal that was sent before would only make Prefect say
    that the run crashed. A flow that somebody calls in a thread of their own hears no signals.
    """
    undo = ExitStack()
    if threading.current_thread() is threading.main_thread():
        # Not SIG_IGN: programs that are started from here would inherit it.
        before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        undo.callback(signal.signal, signal.SIGTERM, before)
    return undo


def sigterm_waits_for_the_ledger() -> ExitStack:
    """SIGTERM breaks off no call of the ledger any more, but comes right behind it.

    Prefect's handler raises wherever the process is. In the middle of the code of a lock or a
    connection that leaves it taken for ever, and the process hangs at the next call. So it is for
    the calling thread, until the stack that is returned is closed.
    """
    undo = ExitStack()
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return undo

    def heed(number: int, frame: FrameType | None) -> None:
        names = (each.f_globals.get("__name__", "") for each, _ in walk_stack(frame))
        if any(name.startswith("headway.ledger.") for name in names):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            before(number, frame)

    alarm = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
    undo.callback(signal.signal, signal.SIGALRM, alarm)
    undo.callback(signal.setitimer, signal.ITIMER_REAL, 0.0)
    undo.callback(signal.signal, signal.SIGTERM, before)
    signal.signal(signal.SIGTERM, heed)
    return undo


def is_over(attempt: Attempt) -> bool:
    """Whether the run is no longer this process's: it has ended, or it was taken.

    Any other signal must not stop the container, nor one while the ledger does not answer.
    """
    try:
        run = attempt.record
    except LedgerUnreachable:
        return False
    return run.state not in GRANTED or run.attempt != attempt.number
