"""ProgressSnapshots: how far each running run is, as its follower says; one row a run."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from sqlmodel import col, select

from headway.ledger.codec import record
from headway.ledger.columns import db_now, put
from headway.ledger.database import Repository
from headway.ledger.fences import fenced, has_run
from headway.ledger.observed_tables import ProgressSnapshotRow
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Fence


class ProgressSnapshots(Repository):
    """The standing table. Reading it costs the same however long a run has lasted."""

    def keep(self, fence: Fence, standing: ProgressSnapshot) -> None:
        """Replace what was said of the run before; the time is the database's.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        said = {**asdict(standing), "at": db_now()}
        key = {"run_id": said.pop("run_id")}
        with self._database.one_statement() as session:
            if put(session, ProgressSnapshotRow, key, has_run(fence), **said):
                return
        with self._database.transaction() as session:
            fenced(session, fence)  # which says why

    def of(self, run_ids: Sequence[str]) -> dict[str, ProgressSnapshot]:
        """What was said last of each run, by its id; nothing of those not followed yet."""
        with self._database.reading() as session:
            query = select(ProgressSnapshotRow).where(col(ProgressSnapshotRow.run_id).in_(run_ids))
            return {row.run_id: record(ProgressSnapshot, row) for row in session.exec(query)}


NOT_KEPT_YET = datetime.min.replace(tzinfo=UTC)
"""The time of a `ProgressSnapshot` that is about to be kept: the ledger sets it."""
