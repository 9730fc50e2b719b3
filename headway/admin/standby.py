"""Standing by for the scheduler of a pool: without a process of its own, until one is wanted."""

import math
from functools import cached_property

from headway.clock import Clock, NowAndThen
from headway.errors import HeadwayError
from headway.ledger import Ledger
from headway.settings import Settings
from headway.site import Site

LOOK_AGAIN_S = 0.5
_SUBMIT_HOST_EVERY_S = 3.0


class Standby:
    """Says when this node is to start a scheduler: nobody leads its pool."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """For the node of *settings*."""
        self._site = Site(settings, clock, Ledger.find)
        self._next_s = -math.inf
        self._submit_host = NowAndThen(clock, _SUBMIT_HOST_EVERY_S)

    def is_due(self) -> bool:
        """Whether it is. Nobody is asked before the term of who leads could be over."""
        clock, settings = self._site.clock, self._site.settings
        if clock.monotonic_s() < self._next_s:
            return False
        self._next_s = clock.monotonic_s() + LOOK_AGAIN_S
        try:
            if self._is_agent_alone:
                self._next_s = math.inf
                return False
            leader = self._site.ledger.leaders.of(settings.pool)
        except HeadwayError:  # nobody could lead now
            return False
        if leader is None or leader.node == settings.node:
            return True
        self._next_s += max(leader.left_s - LOOK_AGAIN_S, 0.0)
        return leader.left_s <= 0

    def is_submit_host(self) -> bool:
        """Whether runs are handed to an engine from this node: it is to have a follower."""
        if not self._submit_host.is_due():
            return False
        try:
            pools = self._site.ledger.engines.pools().values()
        except HeadwayError:
            return False
        return any(each.node == self._site.settings.node for each in pools)

    @cached_property
    def _is_agent_alone(self) -> bool:
        """Whether this node has a login of its own, by which nobody leads."""
        return self._site.ledger.node_logins.own() is not None
