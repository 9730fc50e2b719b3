"""Renewals: a node's guard says what is alive there, and is told what may go on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlmodel import Session, col, select

from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.lease_rows import LIVE
from headway.ledger.nodes import of_the_site
from headway.ledger.tables import LeaseRow, NodeRow, RunRow
from headway.model.lease import NO_EXPIRY
from headway.model.node import NodeState


@dataclass(frozen=True, slots=True)
class RenewalAnswer:
    """What the ledger says to a node's guard."""

    renewed: Mapping[tuple[str, int], Mapping[str, Any]]
    """Run and attempt of each lease that was renewed, with the run's job."""
    others: bool
    """Whether the site has another node, which could be given what this one holds."""


class Renewals(Repository):
    """The expiry of leases."""

    def renew(
        self,
        node: str,
        identity: str,
        *,
        containers: Collection[tuple[str, int]],
        flows: Collection[str],
        ttl_s: float,
        expire: bool,
    ) -> RenewalAnswer:
        """Renew the leases on *node* of what is alive there, in one transaction.

        Nothing of a node that is being or was removed, or whose name another
        one has: its places are given away. What a gang holds for ranks that have not
        begun is renewed with the lease of its head.

        Args:
            node: The node's name.
            identity: The id that it keeps in its home.
            containers: Run and attempt of each container that is alive.
            flows: Runs whose flow process is alive: a container may follow.
            ttl_s: The leases expire so long after this.
            expire: False where the node goes on for as long as it likes. It must have heard
                before that it is the site's only node, and stop by the clock from the moment
                on at which it hears of another, *before* it asks with True.
        """
        run_ids = {run_id for run_id, _ in containers} | set(flows)
        with self._database.transaction() as session:
            row = session.get(NodeRow, node, with_for_update={"read": True})
            others = session.exec(of_the_site().where(NodeRow.name != node).limit(1)).first()
            if row is None or _leaves(row) or row.identity not in {"", identity}:
                return RenewalAnswer({}, others is not None)
            own = [
                (lease, job)
                for lease, job in _leases(session, run_ids)
                if lease.node == node
                and lease.gang_rank == 0
                and ((lease.run_id, lease.attempt) in containers or lease.run_id in flows)
            ]
            heads = {(lease.run_id, lease.attempt) for lease, _ in own}
            until = now(session) + timedelta(seconds=ttl_s) if expire else NO_EXPIRY
            for lease, _ in _leases(session, {run_id for run_id, _ in heads}):
                if (lease.run_id, lease.attempt) in heads:
                    lease.expires_at = until
            return RenewalAnswer(
                {(lease.run_id, lease.attempt): job for lease, job in own}, others is not None
            )


def _leaves(row: NodeRow) -> bool:
    return row.removed_at is not None or row.state is NodeState.LOST


def _leases(session: Session, run_ids: Collection[str]) -> list[tuple[LeaseRow, Mapping[str, Any]]]:
    """The live leases of the runs, locked in one order, each with its run's job."""
    if not run_ids:
        return []
    query = (
        select(LeaseRow, RunRow.job)
        .join(RunRow, col(RunRow.run_id) == col(LeaseRow.run_id))
        .where(LIVE, col(LeaseRow.run_id).in_(run_ids))
        .order_by("lease_id")
        .with_for_update(of=LeaseRow)
    )
    return list(session.exec(query).all())
