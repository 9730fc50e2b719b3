"""A call with a deadline: whoever waits goes on, even if the call never returns."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from headway.clock import Clock
from headway.telemetry.errors import TelemetryTimeout

T = TypeVar("T")


class DeadlineReader:
    """Makes one call at a time, each in a daemon thread of its own.

    A driver that hangs cannot be interrupted, only left behind. While one
    call hangs, further ones fail at once, so that there is never more than
    one thread left behind; when it returns after all, reading goes on.
    """

    def __init__(self, what: str, deadline_s: float, clock: Clock) -> None:
        self._what = what
        self._deadline_s = deadline_s
        self._clock = clock
        self._turn = threading.Lock()
        self._pending: Future[object] | None = None
        self._since_s = 0.0

    def call(self, read: Callable[[], T]) -> T:
        """What *read* returns or raises.

        Raises:
            TelemetryTimeout: No answer within the deadline, or an earlier
                call has not returned yet.
        """
        if not self._turn.acquire(timeout=self._deadline_s):
            raise self._timeout()
        try:
            if self._pending is not None and not self._pending.done():
                raise self._timeout()
            self._since_s = self._clock.monotonic_s()
            future: Future[T] = Future()
            self._pending = future  # type: ignore[assignment] # only its done() is asked
            threading.Thread(
                target=_answer, args=(future, read), name=self._what, daemon=True
            ).start()
            try:
                return future.result(self._deadline_s)
            except TimeoutError:
                if future.done():
                    raise  # *read* itself raised it
                raise self._timeout() from None
        finally:
            self._turn.release()

    def _timeout(self) -> TelemetryTimeout:
        waited_s = max(self._deadline_s, self._clock.monotonic_s() - self._since_s)
        return TelemetryTimeout(self._what, waited_s)


def _answer(future: Future[T], read: Callable[[], T]) -> None:
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
        future.set_exception(error)
