"""What the scheduler has granted on this node, and what of it is to be started or stopped here."""

from contextlib import suppress

from headway.errors import LeaseLost
from headway.node.flowlock import live_flow
from headway.site import Site


class NodeGrants:
    """The leases of this node, as the ledger has them."""

    def __init__(self, site: Site) -> None:
        """Of *site*'s node."""
        self._site = site

    def to_start(self) -> list[str]:
        """Runs that hold a lease here which no flow process has taken up yet, oldest first.

        Not one whose flow process is leaving still: its end wakes the worker.
        """
        node, state_dir = self._site.settings.node, self._site.settings.state_dir
        claims = self._site.ledger.leases.unstarted(node)
        return [each.run_id for each in claims if live_flow(state_dir, each.run_id) is None]

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
