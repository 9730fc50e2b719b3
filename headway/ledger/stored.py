"""Which ended runs are in the site's store."""

from collections.abc import Collection
from datetime import timedelta

from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.records import RunRecord
from headway.ledger.run_rows import run_record
from headway.ledger.tables import RunRow, StoredRow
from headway.model.run import RunState
from headway.model.run_file import StoredRun


class Stored(Repository):
    """The stored table."""

    def add(self, run_id: str, attempt: int, key: str, *, files: int, size_bytes: int) -> None:
        """All of the run up to *attempt* is in the store under *key*, and was checked there."""
        with self._database.transaction() as session:
            session.merge(
                StoredRow(
                    run_id=run_id,
                    attempt=attempt,
                    key=key,
                    files=files,
                    size_bytes=size_bytes,
                    stored_at=now(session),
                )
            )

    def get(self, run_id: str) -> StoredRun | None:
        """What is known of a run; None where it was not brought to the store."""
        with self._database.reading() as session:
            row = session.get(StoredRow, run_id)
            return None if row is None else record(StoredRun, row)

    def missing(self, node: str, limit: int) -> list[RunRecord]:
        """Runs that ended on *node* and are not in the store as they ended, oldest first."""
        stored = select(StoredRow.run_id).where(
            StoredRow.run_id == RunRow.run_id, StoredRow.attempt >= col(RunRow.attempt)
        )
        query = select(RunRow).where(
            RunRow.state == RunState.ENDED, RunRow.node == node, ~stored.exists()
        )
        return self._runs(query.order_by(col(RunRow.ended_at)).limit(limit))

    def unstored(self, run_ids: Collection[str]) -> set[str]:
        """Those of *run_ids*, which have ended, that are not in the store as they ended."""
        with self._database.reading() as session:
            query = (
                select(StoredRow)
                .join(RunRow, col(StoredRow.run_id) == RunRow.run_id)
                .where(col(RunRow.run_id).in_(run_ids), StoredRow.attempt >= col(RunRow.attempt))
            )
            return set(run_ids) - {row.run_id for row in session.exec(query)}

    def ended_before(self, node: str, team: str, age_s: float, limit: int) -> list[RunRecord]:
        """Runs of *team* in the store that ended on *node* longer ago than *age_s*."""
        with self._database.reading() as session:
            before = now(session) - timedelta(seconds=age_s)
        query = (
            select(RunRow)
            .join(StoredRow, col(StoredRow.run_id) == RunRow.run_id)
            .where(
                RunRow.node == node,
                RunRow.team == team,
                col(RunRow.ended_at) < before,
                col(StoredRow.removed_at).is_(None),
            )
        )
        return self._runs(query.order_by(col(RunRow.ended_at)).limit(limit))

    def removed(self, run_id: str) -> None:
        """The run is not in the store any more."""
        with self._database.transaction() as session:
            row = session.get(StoredRow, run_id, with_for_update=True)
            if row is not None:
                row.removed_at = now(session)

    def _runs(self, query: SelectOfScalar[RunRow]) -> list[RunRecord]:
        with self._database.reading() as session:
            return [run_record(row) for row in session.exec(query)]
