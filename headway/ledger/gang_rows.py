"""Rows of the parts that a gang has on other nodes."""

from collections.abc import Collection
from itertools import count

from sqlmodel import Session, select

from headway.ledger.tables import LeasePortRow, LeaseRow, RunRow
from headway.model.number_range import NumberRange
from headway.model.run import RunState, rank_name

FIRST_FREE_PORT = 29_500
"""Where the ranks of a gang meet, or a session serves, or the next one free on that node."""


def ranks_begun(session: Session, run: RunRow) -> bool:
    """Whether a part of this attempt of *run* has begun on another node."""
    query = select(RunRow.run_id).where(RunRow.gang_id == run.run_id, RunRow.attempt == run.attempt)
    return session.exec(query).first() is not None


def free_port(
    session: Session, node: str, within: NumberRange | None, own: Collection[int]
) -> int | None:
    """A port of *node* that no lease has, and none of the job's *own*; of those *within*.

    None where all of them are taken.
    """
    query = select(LeasePortRow.port).where(LeasePortRow.node == node)
    taken = {*session.exec(query), *own}
    ports = range(within.first, within.last + 1) if within else count(FIRST_FREE_PORT)
    return next((port for port in ports if port not in taken), None)


def rank_run(gang: RunRow, lease: LeaseRow, run_id: str) -> RunRow:
    """A rank as a claimed run: never repeated or stopped for others by itself."""
    name = rank_name(gang.name, lease.gang_rank)
    return RunRow(
        run_id=run_id,
        name=name,
        queue=lease.node,
        gang_id=gang.run_id,
        gang_rank=lease.gang_rank,
        job={**gang.job, "name": name, "retries": 0, "preemptible": False},
        state=RunState.CLAIMED,
        attempt=lease.attempt,
        node=lease.node,
        claimed_at=lease.granted_at,
        owner=gang.owner,
        team=gang.team,
        pool=gang.pool,
        priority=gang.priority,
        submitted_at=gang.submitted_at,
        prediction=gang.prediction,
        demand=gang.demand,
        demand_override=gang.demand_override,
    )
