"""What the scheduler has granted on this node, and what of it is to be started or stopped here."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from headway.errors import LeaseLost
from headway.node.flowlock import live_flow
from headway.site import Site


@dataclass(frozen=True, slots=True)
class ToStart:
    """Runs that hold a lease here and have no flow process."""

    granted: tuple[str, ...]
    """Those that no flow process has taken up yet, oldest first."""
    orphaned: tuple[str, ...]
    """Those whose flow process has died."""

    @property
    def all(self) -> frozenset[str]:
        """Both."""
        return frozenset({*self.granted, *self.orphaned})

    def without(self, others: Collection[str]) -> Self:
        """Leave out *others*, such as runs that the worker is starting already."""
        left = ([r for r in each if r not in others] for each in (self.granted, self.orphaned))
        return type(self)(*map(tuple, left))


class NodeGrants:
    """The leases of this node, as the ledger has them."""

    def __init__(self, site: Site) -> None:
        """Of *site*'s node."""
        self._site = site

    def to_start(self) -> ToStart:
        """Leave out a run whose flow process is leaving still: its end wakes the worker."""
        node, state_dir = self._site.settings.node, self._site.settings.state_dir
        granted, orphaned = list[str](), list[str]()
        for lease in self._site.ledger.leases.live(node):  # of a gang rank 0 has a flow here
            if lease.gang_rank == 0 and live_flow(state_dir, lease.run_id) is None:
                (orphaned if lease.start_by is None else granted).append(lease.run_id)
        return ToStart(tuple(granted), tuple(orphaned))

    def to_stop(self) -> list[str]:
        """Runs that the scheduler stops here for others, or to let them go on larger."""
        running = self._site.ledger.runs.on_node(self._site.settings.node)
        return [run.run_id for run in running if run.preempted_for]

    def give_back(self, run_id: str) -> bool:
        """The run is not started after all; False for one that a flow process has taken up."""
        lease = self._site.ledger.leases.of_run(run_id)
        if lease is None or lease.start_by is None or lease.node != self._site.settings.node:
            return False
        with suppress(LeaseLost):  # the janitor was faster
            return self._site.ledger.leases.give_back(lease.fence, start_by=lease.start_by)
        return True
