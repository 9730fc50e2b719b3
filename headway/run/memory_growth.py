"""Raises the memory limit of a program whose job named none; says which memory ran out, and why."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from threading import Event, Thread

from headway.errors import HeadwayError, LeaseLost
from headway.model.lease import Lease
from headway.model.node import GpuReading
from headway.model.run import Exit, ExitKind
from headway.policy.memory_growth import REACTION_S, grown_limit, pause_s
from headway.policy.oom_cause import GpuShare, Holder, Shortage, cause_of
from headway.run.followed import Followed, GpuUse
from headway.run.here import NodeAttempt
from headway.runtime.errors import ContainerMissing
from headway.runtime.outcome import tried_bytes
from headway.site import Site
from headway.this_node import read_node
from headway.units import format_size


def shortage_of(site: Site, lease: Lease, followed: Followed) -> Shortage:
    """Why the attempt that held *lease* ran out of GPU memory.

    Looked at are the GPUs as they were when it was last seen to run, and as
    they are now that it is gone: others may come or go between the two.
    """
    now = {gpu.uuid: gpu for gpu in read_node(site).gpus or ()}
    use = followed.gpu_use or GpuUse()
    before = {gpu.uuid: gpu for gpu in use.newest}
    run_of = {each.pid: each.run_id for gpu in now.values() for each in gpu.processes}
    granted = {
        (each.run_id, grant.uuid): grant.memory_bytes
        for each in site.ledger.leases.live(lease.node)
        for grant in each.gpus
    }
    shares = []
    for grant in lease.gpus:
        views = [
            list(_others(each, lease.run_id, run_of, granted, gone=seen is now))
            for seen in (before, now)
            if (each := seen.get(grant.uuid)) is not None
        ]
        gpu = now.get(grant.uuid) or before.get(grant.uuid)
        shares.append(
            GpuShare(
                uuid=grant.uuid,
                memory_bytes=gpu.memory_bytes - gpu.driver_bytes if gpu is not None else 0,
                granted_bytes=grant.memory_bytes,
                held_bytes=use.peaks.get(grant.uuid),
                others=tuple(
                    max(views, key=lambda view: sum(each.bytes_ for each in view), default=())
                ),
            )
        )
    return cause_of(shares, tried_bytes(followed.log_tail))


def with_shortage(exit_: Exit, found: Shortage) -> Exit:
    """*exit_* with the words for what was found."""
    return replace(exit_, message=f"{exit_.message}; {found.words}") if found.words else exit_


def _others(
    gpu: GpuReading,
    own: str,
    run_of: Mapping[int, str],
    granted: Mapping[tuple[str, str], int],
    *,
    gone: bool,
) -> Iterator[Holder]:
    """Who other than run *own* holds memory of *gpu*; once it is *gone*, all that is in use."""
    held: dict[str, int] = {}
    named_bytes = 0
    for each in gpu.processes:
        run_id = each.run_id or run_of.get(each.pid, "")
        named_bytes += each.memory_bytes or 0
        if not run_id and each.memory_bytes:
            yield Holder(each.memory_bytes, pid=each.pid)
        elif run_id != own:
            held[run_id] = held.get(run_id, 0) + (each.memory_bytes or 0)
    for run_id, bytes_ in held.items():
        yield Holder(bytes_, run_id, granted.get((run_id, gpu.uuid), 0))
    unnamed_bytes = gpu.program_bytes - named_bytes
    if gone and unnamed_bytes > 0:
        yield Holder(unnamed_bytes)


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
        self._held_bytes = 0
        """As far as this process knows the container has it: nothing to begin with."""
        self._used_bytes, self._read_s, self._is_fast = 0, 0.0, False

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
        job = self._attempt.job
        if job.resources.host_memory != "auto":
            return False
        team = self._attempt.site.policy_settings.team(job.team)
        quotas = team.max_host_memory_bytes, team.user(job.owner).max_host_memory_bytes
        return quotas == (None, None)

    def _watch(self, ended: Event) -> None:
        site, name = self._attempt.site, self._attempt.container
        # The process before this one may have died between the ledger and the engine, or have
        # left the program frozen.
        wanted_bytes, wait_s = self._raised_before(), 0.0
        with site.runtime.frozen(name):
            pass
        while not ended.wait(wait_s):
            try:
                if wanted_bytes is not None:
                    with self._held_still():
                        self._raise_to(wanted_bytes)
                wanted_bytes = self._wanted_bytes()
                wait_s = self._pause_s() if wanted_bytes is None or self.refused else 0.0
            except (LeaseLost, ContainerMissing):
                return  # who follows it hears of that, too
            except HeadwayError as error:
                log.warning("memory of %s: %s", name, error)
                wait_s = _TRY_AGAIN_S

    def _raised_before(self) -> int | None:
        """To what its limit was raised before this process; None where it was not."""
        try:
            demand = self._attempt.record.demand
        except HeadwayError:  # the ledger is away: raised once too often does no harm
            demand = None
        asked_bytes = demand.host_memory_bytes if demand is not None else 0
        return self.limit_bytes if self.limit_bytes > asked_bytes else None

    def _held_still(self) -> AbstractContextManager[object]:
        """Where it grows fast, nothing of it runs meanwhile, once for each step.

        On a busy node ledger and engine take longer than it takes to fill what is left. Where the
        ledger is away it goes on.
        """
        is_fast, self._is_fast = self._is_fast, False
        return (
            self._attempt.site.runtime.frozen(self._attempt.container) if is_fast else nullcontext()
        )

    def _wanted_bytes(self) -> int | None:
        """The limit that it should have now; None while its own will do."""
        site, clock = self._attempt.site, self._attempt.site.clock
        used_bytes = site.runtime.usage(self._attempt.container).host_used_bytes or 0
        now_s = clock.monotonic_s()
        grew_bytes, took_s = used_bytes - self._used_bytes, now_s - self._read_s
        rate = max(grew_bytes, 0) / took_s if self._read_s and took_s > 0 else 0.0
        self._used_bytes, self._read_s = used_bytes, now_s
        self._is_fast = used_bytes + rate * REACTION_S > self.limit_bytes
        return grown_limit(self.limit_bytes, used_bytes, rate)

    def _raise_to(self, wanted_bytes: int) -> None:
        """Have the ledger promise so much, or what there is of it, then the container hold it."""
        site = self._attempt.site
        had_bytes = self.limit_bytes
        self.limit_bytes = max(site.ledger.leases.grow(self._fence, wanted_bytes), had_bytes)
        self.refused = ""
        if self.limit_bytes < wanted_bytes:
            self.refused = f"the node had no more than {format_size(self.limit_bytes)} for it"
        if self.limit_bytes > self._held_bytes:
            site.runtime.limit_memory(self._attempt.container, self.limit_bytes)
            self._held_bytes = self.limit_bytes

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
