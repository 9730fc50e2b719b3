"""Rows of the parts that a gang has on other nodes."""

from sqlmodel import Session, select

from headway.ledger.tables import LeaseRow, RunRow
from headway.model.run import RunState, rank_name


def ranks_begun(session: Session, run: RunRow) -> bool:
    """Whether a part of this attempt of *run* has begun on another node."""
    query = select(RunRow.run_id).where(RunRow.gang_id == run.run_id, RunRow.attempt == run.attempt)
    return session.exec(query).first() is not None


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
