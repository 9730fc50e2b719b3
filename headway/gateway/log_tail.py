"""The log of one attempt, read on and on from the node that has it."""

from collections.abc import AsyncIterator

import anyio

from headway.clock import Clock
from headway.errors import NodeSilent, OutputMissing, StoreFailed
from headway.gateway.places import Places
from headway.gateway.standings import Standings
from headway.model.run_file import LogPiece

_WAIT_S = 2.0
"""So long a node waits for more of a log before it says that there is none."""
_QUIET_S = 50.0
"""After so long without a byte a follower is let go, and asks again: proxies cut such streams."""
_LASTS_S = 60.0
"""After so long a follower is let go though more comes, and asks again: a token may have ended."""
_PAUSE_S = 0.5


class LogTail:
    """Reads on where it left off; the secrets in it were struck out where it lies."""

    def __init__(
        self, places: Places, standings: Standings, clock: Clock, run_id: str, attempt: int
    ) -> None:
        """Of one *attempt* of the run."""
        self._places = places
        self._standings = standings
        self._clock = clock
        self._run_id = run_id
        self._attempt = attempt

    async def more(self, offset: int, *, follow: bool) -> LogPiece | None:
        """The piece at *offset*; an empty one where there was none for long. None at the end.

        Args:
            offset: Where to go on.
            follow: Wait for more, unless the attempt is over.

        Raises:
            NodeSilent: The node that has the log does not answer.
            OutputMissing: The log of an attempt that is over is not there.
            StoreFailed: The store that has it does not answer.
        """
        end_s = self._clock.monotonic_s() + _QUIET_S
        while self._clock.monotonic_s() < end_s:
            # How it stands is read first: what was written before its end is then read, too.
            standing = await self._standings.of(self._run_id)
            over = standing.is_over(self._attempt)
            wait_s = _WAIT_S if follow and not over else 0.0
            piece = await self._places.log(
                standing, self._attempt, offset, wait_s=wait_s, whole=over
            )
            if piece is not None and piece.data:
                return piece
            if over or not follow:
                return None
            # Not started yet, or what is there is held back: it may be the beginning of a secret.
            await anyio.sleep(_PAUSE_S)
        return LogPiece(b"", offset)

    async def pieces(self, first: LogPiece, *, follow: bool) -> AsyncIterator[bytes]:
        """*first*, and what follows it without a gap."""
        piece: LogPiece | None = first
        offset = first.start
        end_s = self._clock.monotonic_s() + _LASTS_S
        try:
            while piece is not None and piece.data and piece.start == offset:
                yield piece.data
                offset = piece.end
                if follow and self._clock.monotonic_s() >= end_s:
                    return
                piece = await self.more(offset, follow=follow)
        except (NodeSilent, OutputMissing, StoreFailed):
            return  # whoever asks for the rest is told
