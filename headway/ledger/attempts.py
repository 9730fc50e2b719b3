"""Attempts: what the run's own row forgets when the next attempt begins."""

from sqlmodel import Session, select

from headway.ledger.columns import now
from headway.ledger.database import Database
from headway.ledger.records import optional, to_json
from headway.ledger.tables import AttemptRow, RunRow
from headway.model.attempt import AttemptRecord
from headway.model.lease import Demand
from headway.model.run import Exit, ExitKind, Measurement, Prediction


class Attempts:
    """The attempt table; written with the run's own changes."""

    def __init__(self, database: Database) -> None:
        """Work on *database*."""
        self._database = database

    def of_run(self, run_id: str) -> list[AttemptRecord]:
        """Every attempt that was granted or has ended, oldest first."""
        with self._database.transaction() as session:
            query = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by("attempt")
            return [_record(row) for row in session.exec(query)]


def note_claim(session: Session, run: RunRow) -> None:
    """*run* is granted: keep what it waited for until now. Call before its reason is cleared."""
    row = _row(session, run)
    row.node, row.claimed_at = run.node, run.claimed_at
    if run.resource is not None:
        row.resource, row.reason = run.resource, run.reason
    session.add(row)


def note_start(session: Session, run: RunRow) -> None:
    """The container of *run*'s attempt is about to start."""
    row = _row(session, run)
    row.started_at = run.started_at
    # A gang's rank was granted as part of the gang: nobody noted its claim.
    row.node, row.claimed_at = run.node, row.claimed_at or run.claimed_at
    session.add(row)


def note_end(session: Session, run: RunRow, exit_: Exit, measurement: Measurement | None) -> None:
    """*run*'s attempt has ended. Call before its row moves on to the next attempt."""
    row = _row(session, run)
    if row.node is None and run.resource is not None:  # it ended in the line
        row.resource, row.reason = run.resource, run.reason
    row.ended_at = now(session)
    row.exit_kind, row.exit_code, row.exit_message = exit_.kind.value, exit_.code, exit_.message
    row.prediction, row.demand = run.prediction, run.demand
    row.measurement = None if measurement is None else to_json(measurement)
    session.add(row)


def _row(session: Session, run: RunRow) -> AttemptRow:
    found = session.get(AttemptRow, (run.run_id, run.attempt))
    return found or AttemptRow(run_id=run.run_id, attempt=run.attempt)


def _record(row: AttemptRow) -> AttemptRecord:
    exit_ = None
    if row.exit_kind is not None:
        exit_ = Exit(ExitKind(row.exit_kind), row.exit_code, row.exit_message)
    return AttemptRecord(
        run_id=row.run_id,
        attempt=row.attempt,
        node=row.node,
        resource=row.resource,
        reason=row.reason,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit=exit_,
        prediction=optional(Prediction, row.prediction),
        demand=optional(Demand, row.demand),
        measurement=optional(Measurement, row.measurement),
    )
