"""A scheduler that leads the pool of a site's node."""

from headway.ledger import Ledger
from headway.model.term import Term
from headway.scheduler.queue import PoolQueue
from headway.site import Site


def leading(site: Site) -> PoolQueue:
    """One that leads, unless one of another node does."""
    queue = PoolQueue(site)
    queue.contend(reaches_prefect=True)
    return queue


def term_of(site: Site) -> Term:
    """The term in which *site*'s node leads its pool from now on, unless another one does."""
    return term_in(site.ledger, site.settings.node, site.worker_token)


def term_in(ledger: Ledger, node: str = "node-a", holder: str = "worker") -> Term:
    """That of a process of a node which nothing else is known of."""
    return ledger.leaders.contend("gpu", node, holder, ttl_s=600.0).term
