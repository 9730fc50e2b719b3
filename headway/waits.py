"""Waits for what is to happen, and says so when a command waits for a server or a database."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headway.clock import Clock

LONG_S = 10.0
"""Nobody waits longer without a word."""
_LOOK_EVERY_S = 1.0
_under_way: dict[object, str] = {}


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Within it, *what* was asked and has not answered yet."""
    call = object()
    _under_way[call] = what
    try:
        yield
    finally:
        del _under_way[call]


def until(happened: Callable[[], bool], clock: Clock, within_s: float, every_s: float) -> bool:
    """Wait until something has *happened*, which is asked *every_s*; False when the time is up."""
    give_up_s = clock.monotonic_s() + within_s
    while not happened():
        if clock.monotonic_s() >= give_up_s:
            return False
        clock.sleep(every_s)
    return True


class Watch:
    """Looks on from a thread of its own, since a call that waits says nothing by itself."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        """Measure by *clock*, and tell *say* once of each call that takes long."""
        self._clock = clock
        self._say = say
        self._since_s: dict[object, float] = {}
        self._told: set[object] = set()

    def start(self) -> None:
        """Look on until the process ends."""
        threading.Thread(target=self._run, name="waits", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._clock.sleep(_LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Tell of the calls that take long by now."""
        now_s, calls = self._clock.monotonic_s(), dict(_under_way)
        self._since_s = {call: self._since_s.get(call, now_s) for call in calls}
        self._told &= calls.keys()
        for call, since_s in self._since_s.items():
            if now_s - since_s >= LONG_S - _LOOK_EVERY_S and call not in self._told:
                self._told.add(call)
                self._say(f"still waiting for {calls[call]} …")
