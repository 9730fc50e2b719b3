"""Lets each signed request be answered once, in a bounded memory."""

import heapq

_MOST = 50_000
"""Ten megabytes."""


class Once:
    """The nonces of the requests that were answered.

    Of more than are kept those that expire first are forgotten, and from then on nothing is
    answered that expires as early as they do: a forgotten one is not answered again either.
    A worker that is started anew forgets all of them, and signs with another key.
    """

    def __init__(self, most: int = _MOST) -> None:
        """Keep *most* of them."""
        self._most = most
        self._nonces: set[str] = set()
        self._by_expiry: list[tuple[int, str]] = []
        self._forgotten_s = 0

    def take(self, nonce: str, expires_s: int) -> bool:
        """Whether a request is to be answered, which has been found to be signed and in time."""
        if expires_s <= self._forgotten_s or nonce in self._nonces:
            return False
        self._nonces.add(nonce)
        heapq.heappush(self._by_expiry, (expires_s, nonce))
        if len(self._by_expiry) > self._most:
            self._forgotten_s, forgotten = heapq.heappop(self._by_expiry)
            self._nonces.discard(forgotten)
        return True
