"""Attempts: what the run's own row forgets when the next attempt begins."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, case, func, or_
from sqlmodel import Session, col, select

from headway.ledger.codec import record
from headway.ledger.columns import from_now, now
from headway.ledger.database import Repository
from headway.ledger.tables import AttemptRow, RunRow
from headway.model.attempt_record import AttemptRecord, Failures
from headway.model.lease import Fence
from headway.model.run import PROGRAM_FAILURES, RESTARTED, SICK_GPU, Exit, ExitKind, Measurement

INFRASTRUCTURE_COUNTS_FOR = timedelta(hours=1)
"""So long an attempt that node or engine ended counts against its run's retries."""


class Attempts(Repository):
    """The attempt table; written with the run's own changes."""

    def of_run(self, run_id: str) -> list[AttemptRecord]:
        """Every attempt that was granted or has ended, oldest first."""
        with self._database.reading() as session:
            query = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by("attempt")
            return [record(AttemptRecord, row, exit=row.exit()) for row in session.exec(query)]

    def failures(self, run_ids: Sequence[str]) -> dict[str, Failures]:
        """How many attempts of each run failed, by whose failure it was; `Failures` has how long.

        Nothing of runs of which none did.
        """
        with self._database.reading() as session:
            lately = col(AttemptRow.ended_at) > from_now(-INFRASTRUCTURE_COUNTS_FOR)
            program = col(AttemptRow.exit_kind).in_(PROGRAM_FAILURES)
            infrastructure = and_(col(AttemptRow.exit_kind) == ExitKind.INFRASTRUCTURE, lately)
            of_the_machine = or_(
                col(AttemptRow.exit_message) == RESTARTED,
                col(AttemptRow.exit_message).startswith(SICK_GPU),
            )
            restarts = and_(col(AttemptRow.exit_kind) == ExitKind.PREEMPTED, of_the_machine, lately)
            query = select(
                AttemptRow.run_id,
                func.count(case((program, 1))),
                func.count(case((infrastructure, 1))),
                func.count(case((restarts, 1))),
            ).where(col(AttemptRow.run_id).in_(run_ids), or_(program, infrastructure, restarts))
            rows = session.exec(query.group_by(col(AttemptRow.run_id)))
            return {run_id: Failures(*counts) for run_id, *counts in rows}


def note_claim(session: Session, run: RunRow) -> None:
    """*run* is granted: keep what it waited for until now. Call before its reason is cleared."""
    row = _row(session, run)
    row.node, row.claimed_at = run.node, run.claimed_at
    if run.resource is not None:
        row.resource, row.reason = run.resource, run.reason


def note_start(session: Session, run: RunRow) -> None:
    """The container of *run*'s attempt is about to start."""
    row = _row(session, run)
    row.started_at = run.started_at
    # A gang's rank was granted as part of the gang: nobody noted its claim.
    row.node, row.claimed_at = run.node, row.claimed_at or run.claimed_at


def note_end(
    session: Session, run: RunRow, exit_: Exit, measurement: Measurement | None
) -> datetime:
    """*run*'s attempt has ended; when. Call before its row moves on to the next attempt."""
    row = _row(session, run)
    if row.node is None and run.resource is not None:  # it ended in the queue
        row.resource, row.reason = run.resource, run.reason
    row.ended_at = now(session)
    row.end(exit_)
    row.prediction, row.demand, row.measurement = run.prediction, run.demand, measurement
    return row.ended_at


def exit_of(session: Session, fence: Fence) -> Exit | None:
    """How *fence*'s attempt ended; None while it goes on."""
    row = session.get(AttemptRow, (fence.run_id, fence.attempt))
    return None if row is None else row.exit()


def _row(session: Session, run: RunRow) -> AttemptRow:
    row = session.get(AttemptRow, (run.run_id, run.attempt))
    if row is None:
        row = AttemptRow(run_id=run.run_id, attempt=run.attempt)
        session.add(row)
    return row
