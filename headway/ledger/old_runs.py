"""Runs that ended so long ago that what is kept of their course goes.

The run itself stays, with its attempts, leases and GPUs: what was used is added up from these.
Traces and what was said of starts stay, too: estimates learn from them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, or_
from sqlmodel import col, select

from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.observed_tables import NoticeRow, ProgressRow, ProgressSnapshotRow, WarningRow
from headway.ledger.tables import (
    GangAskRow,
    LeaseRow,
    NodeRow,
    RunRow,
    StagingRow,
    StepRow,
    StoredRow,
)
from headway.model.run import RunState

_COURSE: tuple[Any, ...] = (
    StepRow.run_id,
    ProgressRow.run_id,
    ProgressSnapshotRow.run_id,
    WarningRow.run_id,
    StagingRow.run_id,
    NoticeRow.run_id,
    GangAskRow.gang_id,
)
"""What names the run in each table that goes."""


class OldRuns(Repository):
    """The rows of a run's course: found when they are due, and removed."""

    def due(
        self,
        node: str,
        pool: str,
        before: datetime | None,
        of_teams: Mapping[str, datetime],
        limit: int,
    ) -> list[str]:
        """Runs whose rows go now, those that ended first.

        Prefect has heard of their ends, no lease of theirs lives, and the site's store has nothing
        of them.

        Args:
            node: Whose runs.
            pool: Whose runs where no node answers for them.
            before: Runs that ended earlier are due; None: none by the node's settings.
            of_teams: The same for runs of one team each, where that is later.
            limit: At most so many.
        """
        old = [col(RunRow.ended_at) < before] if before is not None else []
        old += [
            and_(col(RunRow.team) == team, col(RunRow.ended_at) < moment)
            for team, moment in of_teams.items()
        ]
        if not old:
            return []
        held = select(LeaseRow.run_id).where(
            LeaseRow.run_id == RunRow.run_id, col(LeaseRow.released_at).is_(None)
        )
        stored = select(StoredRow.run_id).where(
            StoredRow.run_id == RunRow.run_id,
            col(StoredRow.removed_at).is_(None),
            StoredRow.key != "",
        )
        over = col(RunRow.told_end_at).is_not(None), ~held.exists(), ~stored.exists()
        gone = select(NodeRow.name).where(col(NodeRow.removed_at).is_not(None))
        of_nobody = or_(col(RunRow.node).is_(None), col(RunRow.node).in_(gone))
        ours = or_(col(RunRow.node) == node, and_(col(RunRow.pool) == pool, of_nobody))
        query = select(RunRow.run_id).where(
            RunRow.state == RunState.ENDED, ours,
            col(RunRow.rows_removed_at).is_(None), or_(*old), *over,
        )  # fmt: skip
        with self._database.reading() as session:
            return list(session.exec(query.order_by("ended_at", "run_id").limit(limit)))

    def remove(self, run_ids: Sequence[str]) -> None:
        """Remove the course of these runs, unless one goes on again; the same twice is once."""
        with self._database.transaction() as session:
            query = select(RunRow).where(
                col(RunRow.run_id).in_(run_ids), RunRow.state == RunState.ENDED
            )
            rows = session.exec(query.order_by("run_id").with_for_update()).all()
            over = [row.run_id for row in rows]
            for names_it in _COURSE:
                session.execute(delete(names_it.class_).where(names_it.in_(over)))
            for row in rows:
                row.rows_removed_at = row.rows_removed_at or now(session)
