"""Checks a running attempt for silent failures, and keeps what it finds in the ledger."""

from collections import deque

from headway.model.lease import Basis, Lease
from headway.policy.silent_failures import silent_failures, to_end_for
from headway.run.follow import Findings
from headway.runtime.port import Usage
from headway.site import Site
from headway.this_node import lost_here

CHECKS = 5
"""So many checks within the time after which a GPU counts as not used."""


class SilentCheck:
    """Watches what one lease's run does with its GPUs."""

    def __init__(self, site: Site, lease: Lease) -> None:
        """Watch the run of *lease* on *site*'s node."""
        self._site = site
        self._lease = lease
        self._cpu: deque[tuple[float, float]] = deque()

    def check(self, elapsed_s: float, usage: Usage) -> Findings:
        """Read, decide and keep: what goes wrong now, and whether the run is to end for it.

        Args:
            elapsed_s: Since the container's start.
            usage: Of the container now.

        Raises:
            LedgerUnreachable: Nothing is known now; the run goes on.
        """
        if not self._lease.gpus:
            return Findings()
        ledger, lease = self._site.ledger, self._lease
        settings = self._site.policy_settings
        window_s = 2 * settings.silent_after_s
        points = {
            grant.uuid: ledger.telemetry.series(
                lease.node, gpu=grant.uuid, last_s=min(elapsed_s, window_s)
            )
            for grant in lease.gpus
        }
        found = silent_failures(
            lease,
            points,
            cpu_used=self._cpu_used(elapsed_s, usage, window_s),
            lost=lost_here(self._site),
            after_s=settings.silent_after_s,
        )
        going_on, begun = ledger.warnings.keep(lease.fence, found)
        cause = None
        if going_on:
            demand = ledger.runs.get(lease.run_id).demand
            is_guess = demand is not None and demand.gpu_memory_basis is Basis.PRIOR
            cause = to_end_for(going_on, now=ledger.now(), settings=settings, is_guess=is_guess)
        if cause is not None:
            ledger.warnings.mark_stopped(lease.fence, cause)
        return Findings(tuple(going_on), tuple(begun), end=cause is not None)

    def _cpu_used(self, elapsed_s: float, usage: Usage, window_s: float) -> float | None:
        """Processors in use on average over the window; None before a quarter of it was seen."""
        if usage.cpu_s is None:
            return None
        self._cpu.append((elapsed_s, usage.cpu_s))
        while self._cpu[0][0] < elapsed_s - window_s:
            self._cpu.popleft()
        begun_s, before_s = self._cpu[0]
        if elapsed_s - begun_s < window_s / 4:
            return None
        return (usage.cpu_s - before_s) / (elapsed_s - begun_s)
