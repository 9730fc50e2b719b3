"""Warnings of runs: silent failures, from when they begin to when they are over."""

from collections.abc import Collection, Sequence
from dataclasses import asdict

from sqlmodel import Session, col, select

from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.fences import fenced
from headway.ledger.observed_tables import WarningRow
from headway.model.lease import Fence
from headway.model.run_warning import RunWarning, Silent, SilentFailure


class Warnings(Repository):
    """The warning table."""

    def keep(
        self,
        fence: Fence,
        found: Sequence[SilentFailure],
        *,
        kinds: Collection[Silent] = tuple(Silent),
    ) -> tuple[list[RunWarning], list[RunWarning]]:
        """Keep what goes wrong now: new ones begin, those not among *found* are over.

        Args:
            fence: Of the attempt.
            found: What goes wrong now.
            kinds: That were looked for: warnings of others go on as they are.

        Returns:
            The warnings that go on, and those of them that have just begun.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        run_id, attempt = fence.run_id, fence.attempt
        with self._database.transaction() as session:
            fenced(session, fence)
            moment = now(session)
            rows = {(row.kind, row.gpu): row for row in _rows(session, run_id, attempt)}
            rows = {key: row for key, row in rows.items() if key[0] in kinds}
            going_on, begun = [], []
            for failure in found:
                known = rows.pop((failure.kind, failure.gpu), None)
                is_new = known is None or known.ended_at is not None
                row = session.merge(
                    WarningRow(
                        **{**asdict(failure), "run_id": run_id},
                        attempt=attempt,
                        began_at=moment if known is None or is_new else known.began_at,
                        stopped_at=known.stopped_at if known is not None else None,
                    )
                )
                going_on.append(_warning(row))
                begun += going_on[-1:] if is_new else []
            for row in rows.values():
                row.ended_at = row.ended_at or moment
            return going_on, begun

    def mark_stopped(self, fence: Fence, warning: RunWarning) -> None:
        """The attempt is being ended for *warning*; whoever settles it goes by this mark.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            fenced(session, fence)
            failure = warning.failure
            key = (fence.run_id, fence.attempt, failure.kind, failure.gpu)
            row = session.get_one(WarningRow, key, with_for_update=True)
            row.stopped_at = row.stopped_at or now(session)

    def of_run(self, run_id: str, attempt: int | None = None) -> list[RunWarning]:
        """All that fired, also those that are over; of one attempt, or of all, oldest first."""
        with self._database.reading() as session:
            return [_warning(row) for row in _rows(session, run_id, attempt)]

    def going_on(self) -> list[RunWarning]:
        """What goes wrong now on the whole site."""
        with self._database.reading() as session:
            query = select(WarningRow).where(col(WarningRow.ended_at).is_(None))
            return [_warning(row) for row in session.exec(query.order_by("began_at"))]


def _rows(session: Session, run_id: str, attempt: int | None) -> list[WarningRow]:
    query = select(WarningRow).where(WarningRow.run_id == run_id)
    if attempt is not None:
        query = query.where(WarningRow.attempt == attempt)
    return list(session.exec(query.order_by("attempt", "began_at", "kind", "gpu")))


def end_warnings(session: Session, run_id: str, attempt: int) -> None:
    """The attempt is over, and with it what went wrong in it."""
    for row in _rows(session, run_id, attempt):
        row.ended_at = row.ended_at or now(session)


def _warning(row: WarningRow) -> RunWarning:
    return record(RunWarning, row, failure=record(SilentFailure, row))
