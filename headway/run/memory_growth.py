"""Raises the memory limit of a running program whose job named none, while its node has some."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from threading import Event, Thread

from headway.errors import ContainerMissing, HeadwayError, LeaseLost
from headway.model.lease import Lease
from headway.model.run import Exit, ExitKind
from headway.policy.memory_growth import grown_limit, pause_s
from headway.run.followed import Followed
from headway.run.here import NodeAttempt
from headway.units import format_size

log = logging.getLogger(__name__)

_TRY_AGAIN_S = 0.25
_REFUSED_S = 1.0
"""Until a node that had no more is asked again."""


class MemoryGrowth:
    """What one container may hold, from its lease on.

    Args:
        attempt: Whose container.
        lease: What it may use.
    """

    def __init__(self, attempt: NodeAttempt, lease: Lease) -> None:
        self._attempt = attempt
        self._fence = lease.fence
        self.limit_bytes = lease.host_memory_bytes
        """As the ledger has it."""
        self.refused = ""
        """Why it last got no more; empty where it got what it needed."""
        self._used_bytes, self._read_s = 0, 0.0

    @contextmanager
    def going_on(self) -> Iterator["MemoryGrowth"]:
        """Watch it in a thread meanwhile: a program fills a gibibyte within half a second."""
        ended, context = Event(), copy_context()
        watching = Thread(target=context.run, args=(self._watch, ended), daemon=True)
        if self._may_grow():
            watching.start()
        try:
            yield self
        finally:
            ended.set()
            if watching.ident is not None:
                watching.join()

    def _may_grow(self) -> bool:
        """Whether nobody has named what it may hold: neither its job, nor a quota of its team."""
        record, settings = self._attempt.record, self._attempt.site.policy_settings
        team = settings.team(record.team)
        quotas = team.max_host_memory_bytes, team.user(record.owner).max_host_memory_bytes
        return self._attempt.job.resources.host_memory == "auto" and quotas == (None, None)

    def _watch(self, ended: Event) -> None:
        # The process before this one may have died between the ledger and the engine.
        pending, wait_s = self.limit_bytes > self._asked_bytes(), 0.0
        while not ended.wait(wait_s):
            try:
                if pending:
                    self._attempt.site.runtime.limit_memory(
                        self._attempt.container, self.limit_bytes
                    )
                pending = self._ask()
                wait_s = 0.0 if pending else self._pause_s()
            except (LeaseLost, ContainerMissing):
                return  # who follows it hears of that, too
            except HeadwayError as error:
                log.warning("memory of %s: %s", self._attempt.container, error)
                wait_s = _TRY_AGAIN_S

    def _asked_bytes(self) -> int:
        demand = self._attempt.record.demand
        return demand.host_memory_bytes if demand is not None else 0

    def _ask(self) -> bool:
        """Have the ledger promise more where it is needed; whether it did."""
        site, clock = self._attempt.site, self._attempt.site.clock
        used_bytes = site.runtime.usage(self._attempt.container).host_used_bytes or 0
        now_s = clock.monotonic_s()
        grew_bytes, took_s = used_bytes - self._used_bytes, now_s - self._read_s
        rate = max(grew_bytes, 0) / took_s if self._read_s and took_s > 0 else 0.0
        self._used_bytes, self._read_s = used_bytes, now_s
        wanted_bytes = grown_limit(self.limit_bytes, used_bytes, rate)
        if wanted_bytes is None:
            return False
        had_bytes = self.limit_bytes
        self.limit_bytes = site.ledger.leases.grow(self._fence, wanted_bytes)
        self.refused = ""
        if self.limit_bytes < wanted_bytes:
            self.refused = f"the node had no more than {format_size(self.limit_bytes)} for it"
        return self.limit_bytes > had_bytes

    def _pause_s(self) -> float:
        usual_s = pause_s(self.limit_bytes, self._used_bytes)
        return max(usual_s, _REFUSED_S) if self.refused else usual_s


def with_growth(exit_: Exit, guess_bytes: int, followed: Followed) -> Exit:
    """*exit_*, where memory ended it, with what the program had in the end, and why no more."""
    if exit_.kind is not ExitKind.OUT_OF_MEMORY:
        return exit_
    limit = format_size(followed.memory_limit_bytes)
    why = followed.no_more_memory or "it grew faster than its limit could be raised"
    return replace(
        exit_, message=f"{exit_.message}; raised from {format_size(guess_bytes)} to {limit}: {why}"
    )
