"""Ends that Prefect has acknowledged, to be looked at again.

Its state of them may be changed by hand while nobody listens, and no event tells of it later.
"""

import math
from collections.abc import Collection
from datetime import datetime

from headway.ledger.records import RunRecord
from headway.site import Site

PAGE_EVERY_S = 60.0
_A_PAGE = 100
_PAGES = 20
"""Older ends are compared by `headway doctor --invariants` alone."""


class ToldEnds:
    """Goes through the newest of them, a page a minute, again and again."""

    def __init__(self, site: Site) -> None:
        """Those in the ledger of *site*."""
        self._site = site
        self._due_s = -math.inf
        self._before: datetime | None = None
        self._pages = 0

    def page(self, pools: Collection[str]) -> list[RunRecord]:
        """The next ones of *pools*; none until they are due."""
        now_s = self._site.clock.monotonic_s()
        if now_s < self._due_s:
            return []
        self._due_s = now_s + PAGE_EVERY_S
        found = self._site.ledger.runs.told_ends(pools, self._before, _A_PAGE)
        self._pages += 1
        if len(found) < _A_PAGE or self._pages == _PAGES:
            self._before, self._pages = None, 0
        else:
            self._before = found[-1].ended_at
        return found
