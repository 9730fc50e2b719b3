"""Runs: their place in the line, their attempts, steps and exits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from headway.errors import IllegalTransition, LeaseLost, RunUnknown
from headway.estimate.usual import Lasted, kind_of
from headway.ledger.attempts import note_end, note_start
from headway.ledger.columns import now
from headway.ledger.database import Database
from headway.ledger.records import RunRecord, optional, to_json
from headway.ledger.tables import LeaseRow, RunRow, StepRow
from headway.ledger.warnings import end_warnings
from headway.model.lease import Demand, Resource
from headway.model.run import (
    GRANTED,
    TRANSITIONS,
    Exit,
    ExitKind,
    Measurement,
    Prediction,
    RunState,
    Step,
    StepState,
)


@dataclass(frozen=True, slots=True)
class Reason:
    """What one run waits for."""

    run_id: str
    resource: Resource
    reason: str
    expected_start_at: datetime | None


class Runs:
    """The run and step tables."""

    def __init__(self, database: Database) -> None:
        """Work on *database*."""
        self._database = database

    def enqueue(
        self,
        run_id: str,
        job: Mapping[str, Any],
        *,
        name: str,
        owner: str,
        team: str,
        pool: str,
        priority: int,
        submitted_at: datetime,
        queue: str = "",
    ) -> RunRecord:
        """Put a run into the line. Idempotent: a known run is given back as it is.

        Several workers may see it at the same moment; the first one's row counts.
        """
        values = {
            "run_id": run_id,
            "name": name,
            "owner": owner,
            "team": team,
            "pool": pool,
            "queue": queue,
            "priority": priority,
            "preemptions": 0,
            "gang_rank": 0,
            "job": dict(job),
            "state": RunState.WAITING.value,
            "attempt": 1,
            "reason": "",
            "submitted_at": submitted_at,
            "exit_message": "",
        }
        with self._database.transaction() as session:
            dialect = session.connection().dialect.name
            insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
            session.connection().execute(insert(RunRow).values(values).on_conflict_do_nothing())
            return run_record(_row(session, run_id))

    def get(self, run_id: str) -> RunRecord:
        """The run with this id. Raises `RunUnknown`."""
        with self._database.transaction() as session:
            return run_record(_row(session, run_id))

    def find(self, text: str) -> RunRecord:
        """The run with this id, id prefix or name; of several of one name the newest.

        Raises:
            RunUnknown: None, or a prefix that several runs share.
        """
        if "\0" in text or _half_a_pair(text):
            raise RunUnknown(text)  # no database takes such text, not even in a question
        with self._database.transaction() as session:
            row = session.get(RunRow, text)
            if row is None and len(text) >= 4:
                starts = col(RunRow.run_id).startswith(text, autoescape=True)
                found = session.exec(select(RunRow).where(starts).limit(2)).all()
                row = found[0] if len(found) == 1 else None
            if row is None:
                newest = col(RunRow.submitted_at).desc()
                named = select(RunRow).where(RunRow.name == text).order_by(newest)
                row = session.exec(named.limit(1)).first()
            if row is None:
                raise RunUnknown(text)
            return run_record(row)

    def all(
        self, *, limit: int | None = None, states: Sequence[RunState] = tuple(RunState)
    ) -> list[RunRecord]:
        """Runs in any of *states*, newest first."""
        with self._database.transaction() as session:
            wanted = col(RunRow.state).in_([state.value for state in states])
            query = select(RunRow).where(wanted).order_by(col(RunRow.submitted_at).desc())
            return [run_record(row) for row in session.exec(query.limit(limit))]

    def on_node(self, node: str) -> list[RunRecord]:
        """Runs that were granted something on *node* and have not ended, newest first."""
        with self._database.transaction() as session:
            granted = col(RunRow.state).in_([state.value for state in GRANTED])
            query = select(RunRow).where(granted, RunRow.node == node)
            newest = query.order_by(col(RunRow.submitted_at).desc())
            return [run_record(row) for row in session.exec(newest)]

    def of(self, run_ids: Sequence[str]) -> dict[str, RunRecord]:
        """These runs by their ids; nothing of those that no worker has seen yet."""
        with self._database.transaction() as session:
            return {record.run_id: record for record in runs_of(session, run_ids)}

    def waiting(self, pool: str) -> list[RunRecord]:
        """Every run that waits in a pool, by priority and submission; `policy.plan` decides."""
        with self._database.transaction() as session:
            query = (
                select(RunRow)
                .where(RunRow.state == RunState.WAITING.value, RunRow.pool == pool)
                .order_by(col(RunRow.priority).desc(), col(RunRow.submitted_at), RunRow.run_id)
            )
            return [run_record(row) for row in session.exec(query)]

    def waiting_page(self, pool: str, after: str, limit: int) -> list[RunRecord]:
        """The *limit* waiting runs that follow the run *after*, by id."""
        with self._database.transaction() as session:
            query = (
                select(RunRow)
                .where(
                    RunRow.state == RunState.WAITING.value,
                    RunRow.pool == pool,
                    RunRow.run_id > after,
                )
                .order_by("run_id")
            )
            return [run_record(row) for row in session.exec(query.limit(limit))]

    def set_reason(
        self, run_id: str, resource: Resource, reason: str, *, expected_start_at: datetime | None
    ) -> bool:
        """Keep what a waiting run waits for; True only when that is news."""
        with self._database.transaction() as session:
            row = _row(session, run_id, lock=True)
            if row.state != RunState.WAITING.value:
                return False
            news = (row.resource, row.reason) != (resource.value, reason)
            row.resource, row.reason = resource.value, reason
            row.expected_start_at = expected_start_at
            session.add(row)
            return news

    def set_reasons(self, reasons: Sequence[Reason]) -> None:
        """Keep what many waiting runs wait for, in one transaction; of others nothing changes."""
        if not reasons:
            return
        statement = (
            update(RunRow)
            .where(
                col(RunRow.run_id) == bindparam("of_run"),
                col(RunRow.state) == RunState.WAITING.value,
            )
            .values(
                resource=bindparam("resource"),
                reason=bindparam("reason"),
                expected_start_at=bindparam("expected_start_at"),
            )
        )
        values = [
            {
                "of_run": each.run_id,
                "resource": each.resource.value,
                "reason": each.reason,
                "expected_start_at": each.expected_start_at,
            }
            for each in sorted(reasons, key=lambda each: each.run_id)  # all lock in one order
        ]
        with self._database.transaction() as session:
            session.connection().execute(statement, values)

    def predict(self, run_id: str, prediction: Prediction, demand: Demand) -> None:
        """Keep what was said before the start."""
        with self._database.transaction() as session:
            row = _row(session, run_id, lock=True)
            row.prediction, row.demand = to_json(prediction), to_json(demand)
            session.add(row)

    def begin(self, run_id: str, attempt: int, token: str, *, container: str, runtime: str) -> None:
        """The container is there and about to start. Idempotent for the same attempt.

        Raises:
            LeaseLost: *token* is not that of the run's live lease.
        """
        with self._database.transaction() as session:
            row = _row(session, run_id, lock=True)
            lease = live_lease(session, run_id)
            if lease is None or lease.token != token or row.attempt != attempt:
                raise LeaseLost(
                    (lease.lease_id or 0) if lease else 0, run_id, "another attempt holds it"
                )
            if row.state != RunState.RUNNING.value:
                move(row, RunState.RUNNING)
                row.started_at = now(session)
                note_start(session, row)
            row.container, row.runtime = container, runtime
            session.add(row)

    def requeue(
        self,
        run_id: str,
        exit_: Exit,
        measurement: Measurement | None = None,
        *,
        demand_override: Mapping[str, Any] | None = None,
    ) -> None:
        """Back to the line as the next attempt. The lease stays until the container is gone."""
        with self._database.transaction() as session:
            row = _row(session, run_id, lock=True)
            note_end(session, row, exit_, measurement)
            end_warnings(session, run_id, row.attempt)
            move(row, RunState.WAITING)
            row.attempt += 1
            row.exit_kind, row.exit_code = exit_.kind.value, exit_.code
            row.exit_message = exit_.message
            row.reason, row.resource, row.expected_start_at = exit_.message, None, None
            row.container = row.claimed_at = row.started_at = row.preempted_for = None
            row.preemptions += exit_.kind is ExitKind.PREEMPTED
            if demand_override is not None:
                row.demand_override = dict(demand_override)
            session.add(row)

    def preempt(self, run_id: str, for_run_id: str) -> bool:
        """Mark a running run as being stopped for another; False when it runs no more."""
        with self._database.transaction() as session:
            row = _row(session, run_id, lock=True)
            if row.state != RunState.RUNNING.value:
                return False
            row.preempted_for = for_run_id
            session.add(row)
            return True

    def finish(self, run_id: str, exit_: Exit, measurement: Measurement) -> bool:
        """End the run; the first end counts, later ones answer False."""
        with self._database.transaction() as session:
            row = _row(session, run_id, lock=True)
            if row.state == RunState.ENDED.value:
                return False
            note_end(session, row, exit_, measurement)
            end_warnings(session, run_id, row.attempt)
            move(row, RunState.ENDED)
            row.ended_at = now(session)
            row.exit_kind, row.exit_code = exit_.kind.value, exit_.code
            row.exit_message = exit_.message
            row.measurement = to_json(measurement)
            row.reason, row.resource, row.expected_start_at = "", None, None
            session.add(row)
            return True

    def step_started(self, run_id: str, attempt: int, name: str) -> None:
        """A step begins, or begins again in the next process."""
        with self._database.transaction() as session:
            session.merge(
                StepRow(
                    run_id=run_id,
                    attempt=attempt,
                    name=name,
                    state=StepState.RUNNING.value,
                    started_at=now(session),
                    ended_at=None,
                )
            )

    def step_ended(
        self, run_id: str, attempt: int, name: str, state: StepState, message: str = ""
    ) -> None:
        """A step that was started has ended."""
        with self._database.transaction() as session:
            row = session.get_one(StepRow, (run_id, attempt, name))
            row.state, row.message, row.ended_at = state.value, message, now(session)
            session.add(row)

    def steps(self, run_id: str) -> list[Step]:
        """Every step of every attempt, in order of their start."""
        with self._database.transaction() as session:
            query = select(StepRow).where(StepRow.run_id == run_id).order_by("started_at")
            return [
                Step(
                    row.name,
                    row.attempt,
                    StepState(row.state),
                    row.started_at,
                    row.ended_at,
                    row.message,
                )
                for row in session.exec(query)
            ]

    def ranks(self, run_id: str, attempt: int) -> list[RunRecord]:
        """The parts of the run's attempt on other nodes that have begun, by rank."""
        with self._database.transaction() as session:
            query = select(RunRow).where(RunRow.gang_id == run_id, RunRow.attempt == attempt)
            return [run_record(row) for row in session.exec(query.order_by("gang_rank"))]

    def lasted(self, limit: int) -> list[Lasted]:
        """What the runs lasted that ended well, the newest *limit* of them."""
        with self._database.transaction() as session:
            query = (
                select(RunRow.job, RunRow.owner, RunRow.measurement)
                .where(
                    col(RunRow.ended_at).is_not(None),
                    RunRow.exit_kind == ExitKind.OK.value,
                    col(RunRow.gang_id).is_(None),
                )
                .order_by(col(RunRow.ended_at).desc())
                .limit(limit)
            )
            return [
                Lasted(kind_of(job, owner), float(measured["runtime_s"]))
                for job, owner, measured in session.exec(query)
                if measured and measured.get("runtime_s")
            ]

    def counts(self) -> dict[RunState, int]:
        """How many runs are in each state."""
        with self._database.transaction() as session:
            query = select(RunRow.state, func.count()).group_by(col(RunRow.state))
            found = dict(session.exec(query).all())
            return {state: found.get(state.value, 0) for state in RunState}


def live_lease(session: Session, run_id: str) -> LeaseRow | None:
    """The run's own unreleased lease; a partial index allows one at most."""
    return next((row for row in leases_of(session, run_id) if row.gang_rank == 0), None)


def leases_of(session: Session, run_id: str) -> Sequence[LeaseRow]:
    """The run's unreleased leases by rank: its own, and those its other ranks have yet to take."""
    query = select(LeaseRow).where(LeaseRow.run_id == run_id, col(LeaseRow.released_at).is_(None))
    return session.exec(query.order_by("gang_rank")).all()


def move(row: RunRow, to: RunState) -> None:
    """Change a run's state along `TRANSITIONS`, or raise `IllegalTransition`."""
    if to not in TRANSITIONS[RunState(row.state)]:
        raise IllegalTransition(row.run_id, row.state, to.value)
    row.state = to.value


def _row(session: Session, run_id: str, *, lock: bool = False) -> RunRow:
    row = session.get(RunRow, run_id, with_for_update=lock or None)
    if row is None:
        raise RunUnknown(run_id)
    return row


def runs_of(session: Session, run_ids: Sequence[str]) -> list[RunRecord]:
    """The records of *run_ids*, as many of them as there are."""
    found = []
    for start in range(0, len(run_ids), 500):  # SQLite takes some thousand parameters at most
        page = run_ids[start : start + 500]
        query = select(RunRow).where(col(RunRow.run_id).in_(page)).order_by("run_id")
        found += [run_record(row) for row in session.exec(query)]
    return found


def run_record(row: RunRow) -> RunRecord:
    """The record of a row."""
    exit_ = None
    if row.exit_kind is not None and row.state == RunState.ENDED.value:
        exit_ = Exit(ExitKind(row.exit_kind), row.exit_code, row.exit_message)
    return RunRecord(
        run_id=row.run_id,
        name=row.name,
        owner=row.owner,
        team=row.team,
        pool=row.pool,
        queue=row.queue,
        priority=row.priority,
        preempted_for=row.preempted_for,
        preemptions=row.preemptions,
        job=row.job,
        state=RunState(row.state),
        attempt=row.attempt,
        resource=row.resource,
        reason=row.reason,
        expected_start_at=row.expected_start_at,
        node=row.node,
        runtime=row.runtime,
        container=row.container,
        submitted_at=row.submitted_at,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit=exit_,
        prediction=optional(Prediction, row.prediction),
        demand=optional(Demand, row.demand),
        demand_override=row.demand_override,
        measurement=optional(Measurement, row.measurement),
        gang_id=row.gang_id,
        gang_rank=row.gang_rank,
    )


def _half_a_pair(text: str) -> bool:
    """Whether *text* has a lone surrogate, as an argument that is not UTF-8 has."""
    return any("\ud800" <= character <= "\udfff" for character in text)
