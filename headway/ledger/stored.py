"""Which parts of ended runs are in the site's store.

A run's attempts may have been on several nodes. What lies on one of them is a part, known by the
last attempt there.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, func
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.records import RunRecord
from headway.ledger.run_rows import run_record
from headway.ledger.tables import AttemptRow, RunRow, StoredRow
from headway.model.run import RunState
from headway.model.run_file import KeptInStore, StoredPart


class Stored(Repository):
    """The stored table."""

    def add(
        self, run_id: str, attempt: int, key: str, *, files: int, size_bytes: int, note: str = ""
    ) -> None:
        """The part of the run up to *attempt* is in the store under *key*, and was checked there.

        Args:
            run_id: The run, which has ended.
            attempt: Its last one on the node that brought it.
            key: Where; empty where there was nothing to bring.
            files: How many outputs.
            size_bytes: What they take together.
            note: What of it was left out, and why.
        """
        with self._database.transaction() as session:
            session.merge(
                StoredRow(
                    run_id=run_id,
                    attempt=attempt,
                    key=key,
                    files=files,
                    size_bytes=size_bytes,
                    stored_at=now(session),
                    note=note,
                )
            )

    def of_run(self, run_id: str) -> list[StoredPart]:
        """Every part that was brought there, also those that are there no more; oldest first."""
        query = select(StoredRow).where(StoredRow.run_id == run_id).order_by("attempt")
        return self._records(StoredPart, query)

    def missing(self, node: str, limit: int) -> list[tuple[RunRecord, int]]:
        """Ended runs of which *node* has a part that is not in the store, oldest first.

        Each with its last attempt there.
        """
        query: Any = select(RunRow, AttemptRow.attempt).join(AttemptRow)
        query = query.where(RunRow.state == RunState.ENDED, *_unstored_on(node))
        query = query.order_by(col(RunRow.ended_at)).limit(limit)
        with self._database.reading() as session:
            return [(run_record(row), attempt) for row, attempt in session.exec(query)]

    def unstored(self, node: str, run_ids: Collection[str]) -> set[str]:
        """Those of *run_ids* of which *node* has a part that is not in the store."""
        query = select(AttemptRow.run_id).where(
            col(AttemptRow.run_id).in_(run_ids), *_unstored_on(node)
        )
        with self._database.reading() as session:
            return set(session.exec(query))

    def kept(self) -> list[KeptInStore]:
        """Every ended run of which something is in the store."""
        query: Any = select(
            RunRow.run_id, RunRow.name, RunRow.team, RunRow.ended_at, func.sum(StoredRow.size_bytes)
        ).join(StoredRow)  # type: ignore[call-overload]  # typed for four columns at most
        query = query.where(
            RunRow.state == RunState.ENDED,
            col(StoredRow.removed_at).is_(None),
            StoredRow.key != "",
        ).group_by(RunRow.run_id, RunRow.name, RunRow.team, RunRow.ended_at)
        with self._database.reading() as session:
            return [
                KeptInStore(run_id, name, team, ended_at, int(size_bytes))
                for run_id, name, team, ended_at, size_bytes in session.exec(query)
            ]

    def removed(self, run_id: str, attempt: int) -> None:
        """That part of the run is not in the store any more."""
        with self._database.transaction() as session:
            row = session.get(StoredRow, (run_id, attempt), with_for_update=True)
            if row is not None:
                row.removed_at = row.removed_at or now(session)


def _unstored_on(node: str) -> tuple[ColumnElement[bool], ...]:
    """Of attempts: it was started on *node*, was the last there, and is not in the store."""
    later = aliased(AttemptRow)
    has_later = (
        select(later.run_id)
        .where(
            later.run_id == AttemptRow.run_id,
            later.node == node,
            later.attempt > AttemptRow.attempt,
            col(later.started_at).is_not(None),
        )
        .exists()
    )
    is_stored = (
        select(StoredRow.run_id)
        .where(StoredRow.run_id == AttemptRow.run_id, StoredRow.attempt == AttemptRow.attempt)
        .exists()
    )
    started_here = (col(AttemptRow.node) == node, col(AttemptRow.started_at).is_not(None))
    return (*started_here, ~has_later, ~is_stored)
