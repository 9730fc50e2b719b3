"""Which data sets lie on which node, and which runs still need them."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import delete
from sqlmodel import col, select

from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.tables import StagedRow, StagedUseRow
from headway.model.staged import StagedSet


class Staged(Repository):
    """The staged tables: reference counts that survive every process."""

    def acquire(self, node: str, key: str, run_id: str) -> None:
        """*run_id* needs *key*: it may not be evicted from now on. Idempotent."""
        with self._database.transaction() as session:
            session.merge(StagedUseRow(node=node, key=key, run_id=run_id))
            row = session.get(StagedRow, (node, key))
            if row is not None:
                row.used_at = now(session)

    def release(self, node: str, run_id: str) -> None:
        """*run_id* needs nothing on *node* any more. Idempotent."""
        with self._database.transaction() as session:
            used = col(StagedUseRow.node) == node, col(StagedUseRow.run_id) == run_id
            session.exec(delete(StagedUseRow).where(*used))

    def record(self, node: str, key: str, uri: str, size_bytes: int, sha256: str) -> None:
        """*key* is complete in the cache."""
        with self._database.transaction() as session:
            row = StagedRow(
                node=node,
                key=key,
                uri=uri,
                size_bytes=size_bytes,
                sha256=sha256,
                used_at=now(session),
            )
            session.merge(row)

    def evictable(self, node: str) -> list[StagedSet]:
        """Data sets that no run needs, least recently used first."""
        with self._database.reading() as session:
            used = select(StagedUseRow.key).where(StagedUseRow.node == node)
            query = (
                select(StagedRow)
                .where(StagedRow.node == node, col(StagedRow.key).not_in(used))
                .order_by("used_at")
            )
            return [_set(row) for row in session.exec(query)]

    def remove(self, node: str, key: str) -> bool:
        """Forget *key* unless a run needs it; whether it may be deleted now."""
        with self._database.transaction() as session:
            query = select(StagedUseRow).where(StagedUseRow.node == node, StagedUseRow.key == key)
            if session.exec(query.limit(1)).first() is not None:
                return False
            itself = col(StagedRow.node) == node, col(StagedRow.key) == key
            session.exec(delete(StagedRow).where(*itself))
            return True

    def list(self, node: str) -> list[StagedSet]:
        """Everything in the node's cache."""
        with self._database.reading() as session:
            query = select(StagedRow).where(StagedRow.node == node).order_by("used_at")
            used: dict[str, Any] = {}
            for use in session.exec(select(StagedUseRow).where(StagedUseRow.node == node)):
                used.setdefault(use.key, []).append(use.run_id)
            return [_set(row, used.get(row.key, ())) for row in session.exec(query)]


def _set(row: StagedRow, run_ids: Iterable[str] = ()) -> StagedSet:
    return record(StagedSet, row, run_ids=tuple(sorted(run_ids)))
