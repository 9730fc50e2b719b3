"""What one team may take of what all teams share: time of the event loop, threads, messages."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar, TypeVarTuple, Unpack
from weakref import WeakValueDictionary

import anyio

_Values = TypeVarTuple("_Values")
_Result = TypeVar("_Result")
_SHARE = 0.1
"""Of the event loop's time, at most, for the bytes of one team."""
_AHEAD_S = 0.02
"""So much of its wall-clock time may a team that was silent take at once."""
MESSAGE_S, BYTE_S = 50e-6, 1e-9
"""What one message, and a byte of it, take of the loop: measured, with TLS, at a gigabyte a second.
With the share it comes to 2,000 messages and 100 MB a second for a team."""
_MOST_KNOWN = 10_000


class LoopShares:
    """Lets each team have its share of the event loop for moving bytes; they wait for their own."""

    def __init__(self) -> None:
        """Nobody has taken anything."""
        self._free_at_s: dict[str, float] = {}

    def wait_s(self, whose: str, now_s: float) -> float:
        """Seconds until *whose* bytes may go on; 0 or less for at once."""
        return self._free_at_s.get(whose, 0.0) - now_s

    def charge(self, whose: str, now_s: float, taken_s: float) -> None:
        """Note that *whose* bytes have taken so much of the loop, at *now_s* by its clock."""
        free_at_s = max(self._free_at_s.pop(whose, 0.0), now_s - _AHEAD_S)
        self._free_at_s[whose] = free_at_s + taken_s / _SHARE
        if len(self._free_at_s) > _MOST_KNOWN:  # whoever was silent longest is first
            self._free_at_s.pop(next(iter(self._free_at_s)))

    async def pay(self, whose: str, taken_s: float) -> None:
        """Charge *whose*, and wait until its share allows more."""
        loop = asyncio.get_running_loop()
        self.charge(whose, loop.time(), taken_s)
        if (wait_s := self.wait_s(whose, loop.time())) > 0:
            await asyncio.sleep(wait_s)

    async def moved(self, whose: str, size_bytes: int) -> None:
        """Charge *whose* for one message of *size_bytes*, and wait until its share allows more."""
        await self.pay(whose, MESSAGE_S + size_bytes * BYTE_S)


LOOP = LoopShares()
"""Of this process, which has one event loop."""


WHOSE: ContextVar[str] = ContextVar("WHOSE", default="")
"""The team whose request this task works on; `address` of who is not known."""


def address(client: tuple[str, int] | None) -> str:
    """As whose requests count that show no token: those of their address, which is no team."""
    return f"at {client[0] if client else ''}"


class TeamLimiters(WeakValueDictionary[str, anyio.CapacityLimiter]):
    """A limiter for each team, so that one that takes all of its own keeps nobody else waiting."""

    def __init__(self, at_once: int) -> None:
        """Each lets *at_once* through."""
        super().__init__()
        self._at_once = at_once

    def own(self) -> anyio.CapacityLimiter:
        """That of the team whose request this is."""
        return self.of(WHOSE.get())

    def of(self, whose: str) -> anyio.CapacityLimiter:
        """That of the team, or the user, *whose*; it is forgotten once nobody uses it."""
        found = self.get(whose)
        if found is None:
            found = self[whose] = anyio.CapacityLimiter(self._at_once)
        return found


_THREADS = TeamLimiters(4)


async def in_thread(function: Callable[[Unpack[_Values]], _Result], *values: *_Values) -> _Result:
    """What *function* makes of *values* in a thread, of which each team has some of its own."""
    return await anyio.to_thread.run_sync(function, *values, limiter=_THREADS.own())
