"""Standing by for the scheduler of a pool: without a process of its own, until one is wanted."""

import math
from functools import cached_property

from headway.clock import Clock
from headway.errors import HeadwayError
from headway.ledger import Ledger
from headway.settings import Settings
from headway.site import Site

LOOK_AGAIN_S = 0.5


class Standby:
    """Says when this node is to start a scheduler: nobody leads its pool."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """For the node of *settings*."""
        self._site = Site(settings, clock, Ledger.find)
        self._next_s = -math.inf

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

    @cached_property
    def _is_agent_alone(self) -> bool:
        """Whether this node has a login of its own, by which nobody leads."""
        return self._site.ledger.node_logins.own() is not None
