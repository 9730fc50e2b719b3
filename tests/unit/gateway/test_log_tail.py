"""A log that is followed, while its program writes without an end."""

from typing import Any

import anyio

from headway.gateway.run_files import LogTail
from headway.model.run_file import LogPiece
from tests.ports.clock import FakeClock

MINUTES = 600


class Chatty:
    """A node whose run writes one byte a second."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def log(self, _: object, __: int, offset: int, **___: object) -> LogPiece:
        self._clock.sleep(1)
        return LogPiece(b"x", offset)


class UnderWay:
    """How the run stands: it goes on."""

    def is_over(self, _: int) -> bool:
        return False

    async def of(self, _: str) -> "UnderWay":
        return self


def test_a_follower_is_let_go_within_a_minute_and_its_token_looked_at_again() -> None:
    """Else a token that is revoked would show a log for as long as its run goes on."""

    async def seen() -> bytes:
        clock = FakeClock()
        places: Any = Chatty(clock)
        standings: Any = UnderWay()
        tail = LogTail(places, standings, clock, "run", 1)
        found = b""
        async for piece in tail.pieces(LogPiece(b"x", 0), follow=True):
            found += piece
            assert len(found) < MINUTES, "it goes on and on"
        return found

    assert 30 <= len(anyio.run(seen)) <= 90
