"""What one team may take of what all teams share: time of the event loop, threads, messages."""

import asyncio
from collections import defaultdict

import anyio

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


class TeamLimiters(defaultdict[str, anyio.CapacityLimiter]):
    """A limiter for each team, so that one that takes all of its own keeps nobody else waiting."""

    def __init__(self, at_once: int) -> None:
        """Each lets *at_once* through."""
        super().__init__(lambda: anyio.CapacityLimiter(at_once))
