"""A scheduler that leads the pool of a site's node."""

from typing import Any

from headway.ledger import Ledger
from headway.ledger.runs import Reason
from headway.model.lease import Demand, Lease, Resource, Wait
from headway.model.node import NodeReading
from headway.model.term import Term
from headway.run.attempt import Attempt
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


def wait_in_term(ledger: Ledger, run_id: str, resource: Resource, reason: str) -> None:
    """Keep what a run waits for, as its scheduler does."""
    ledger.runs.set_reasons([Reason(run_id, resource, reason, None)], term_in(ledger))


def admit_in_term(
    ledger: Ledger,
    run_id: str,
    node: str,
    demand: Demand,
    *,
    reading: NodeReading | None = None,
    ttl_s: float = 60.0,
    **more: Any,
) -> Lease | Wait:
    """What a scheduler that leads the pool would be answered, after the node reported *reading*.

    Where nobody has led it yet, somebody has for a moment: anybody else may at once.
    """
    if reading is not None:
        record = ledger.nodes.get(node)
        assert record is not None
        assert ledger.nodes.heartbeat(node, record.worker_token, reading)
    leader = ledger.leaders.of("gpu")
    if leader is None:
        leader = ledger.leaders.contend("gpu", "no node", "no process", ttl_s=0.0)
    return ledger.leases.admit(run_id, node, demand, term=leader.term, ttl_s=ttl_s, **more)


def grant_in_term(ledger: Ledger, run_id: str, node: str, demand: Demand, **more: Any) -> Lease:
    """The same, where it has to be granted."""
    lease = admit_in_term(ledger, run_id, node, demand, **more)
    assert isinstance(lease, Lease), lease
    return lease


def admitted(attempt: Attempt) -> Lease:
    """The lease of *attempt*, which has to be admitted."""
    lease = attempt.admit()
    assert isinstance(lease, Lease), lease
    return lease
