"""Which data sets lie on which node, and which runs still need them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter

from sqlalchemy import delete, func
from sqlmodel import col, select

from headway.ledger.codec import record
from headway.ledger.columns import insert_new, now
from headway.ledger.database import Repository
from headway.ledger.fences import may_step, step_lost
from headway.ledger.run_rows import run_row
from headway.ledger.tables import StagedRow, StagedUseRow, StagingRow
from headway.model.lease import Fence
from headway.model.staged import CacheUse, StagedSet, Staging


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

    def remove(self, node: str, key: str) -> bool:
        """Forget *key* unless a run needs it; whether it may be deleted now."""
        with self._database.transaction() as session:
            query = select(StagedUseRow).where(StagedUseRow.node == node, StagedUseRow.key == key)
            if session.exec(query.limit(1)).first() is not None:
                return False
            itself = col(StagedRow.node) == node, col(StagedRow.key) == key
            session.exec(delete(StagedRow).where(*itself))
            return True

    def note(self, fence: Fence, staging: Staging) -> None:
        """Keep how a data set came to the node; what was kept of it first counts.

        Whoever takes over from a process that died finds it there, which was no hit. What an
        attempt that went to another node after all had on the first is replaced.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run_row(session, fence.run_id, lock=True)
            if not session.scalar(select(may_step(fence))):
                raise step_lost(fence)
            row = StagingRow(run_id=fence.run_id, **asdict(staging))
            if insert_new(session, row):
                return
            kept = session.get_one(StagingRow, (fence.run_id, staging.attempt, staging.name))
            if kept.node != staging.node:
                session.merge(row)

    def of_run(self, run_id: str) -> Sequence[Staging]:
        """How its data sets came to the nodes of its attempts, in order."""
        rows = select(StagingRow).where(StagingRow.run_id == run_id)
        return self._records(Staging, rows.order_by("attempt", "name"))

    def uses(self) -> Mapping[str, CacheUse]:
        """By node, what its cache has and how often it has spared a copy."""
        size, there = func.sum(StagingRow.size_bytes), col(StagingRow.was_there)
        with self._database.reading() as session:
            came = select(StagingRow.node, there, func.count(), size)
            held = select(StagedRow.node, func.count(), func.sum(StagedRow.size_bytes))
            found: dict[str, CacheUse] = {}
            for node, sets, held_bytes in session.exec(held.group_by(StagedRow.node)):
                found[node] = CacheUse(sets=sets, size_bytes=int(held_bytes or 0))
            for node, hit, times, amount in session.exec(came.group_by(StagingRow.node, there)):
                words = ("hits", "hit_bytes") if hit else ("copies", "copied_bytes")
                counted = dict(zip(words, (times, int(amount or 0)), strict=True))
                found[node] = replace(found.get(node, CacheUse()), **counted)
            return found

    def list(self, node: str) -> list[StagedSet]:
        """Everything in the node's cache, least recently used first."""
        with self._database.reading() as session:
            uses = (col(StagedUseRow.node) == StagedRow.node) & (
                col(StagedUseRow.key) == StagedRow.key
            )
            query = select(StagedRow, StagedUseRow.run_id).outerjoin(StagedUseRow, uses)
            sets = query.where(StagedRow.node == node).order_by("used_at", StagedRow.key)
            return [
                record(StagedSet, row, run_ids=tuple(sorted(each for _, each in used if each)))
                for row, used in groupby(session.exec(sets), key=itemgetter(0))
            ]
