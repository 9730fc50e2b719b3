"""A scheduler that leads the pool of a site's node."""

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
    node, holder = site.settings.node, site.worker_token
    return site.ledger.leaders.contend(site.settings.pool, node, holder, ttl_s=600.0).term
