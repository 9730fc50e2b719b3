"""Runs: their place in the queue, their attempts, steps and exits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import LeaseLost, RunUnknown
from headway.estimate.usual import Lasted, kind_of
from headway.ledger.attempts import note_end, note_start
from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.lease_rows import live_lease, number
from headway.ledger.records import RunRecord
from headway.ledger.run_rows import move, run_record, run_row, runs_of
from headway.ledger.tables import RunRow, StepRow
from headway.ledger.warnings import end_warnings
from headway.model.lease import Demand, Resource
from headway.model.run import (
    GRANTED,
    Exit,
    ExitKind,
    Measurement,
    Prediction,
    RunState,
    Step,
    StepState,
)

_NEWEST = col(RunRow.submitted_at).desc()


@dataclass(frozen=True, slots=True)
class Reason:
    """What one run waits for."""

    run_id: str
    resource: Resource
    reason: str
    expected_start_at: datetime | None


class Runs(Repository):
    """The run and step tables."""

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
        """Put a run into the queue. Idempotent: a known run is given back as it is.

        Several workers may see it at the same moment; the first one's row counts.
        """
        row = RunRow(
            run_id=run_id,
            name=name,
            owner=owner,
            team=team,
            pool=pool,
            queue=queue,
            priority=priority,
            job=dict(job),
            state=RunState.WAITING,
            submitted_at=submitted_at,
        )
        with self._database.transaction() as session:
            dialect = session.connection().dialect.name
            insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
            values = row.model_dump()
            session.connection().execute(insert(RunRow).values(values).on_conflict_do_nothing())
            return run_record(run_row(session, run_id))

    def get(self, run_id: str) -> RunRecord:
        """The run with this id. Raises `RunUnknown`."""
        with self._database.transaction() as session:
            return run_record(run_row(session, run_id))

    def find(self, text: str) -> RunRecord:
        """The run with this id, id prefix or name; of several of one name the newest.

        Raises:
            RunUnknown: None, or a prefix that several runs share.
        """
        if any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text):
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
        query = select(RunRow).where(col(RunRow.state).in_(states)).order_by(_NEWEST)
        return self._found(query.limit(limit))

    def on_node(self, node: str) -> list[RunRecord]:
        """Runs that were granted something on *node* and have not ended, newest first."""
        granted = col(RunRow.state).in_(GRANTED), RunRow.node == node
        return self._found(select(RunRow).where(*granted).order_by(_NEWEST))

    def of(self, run_ids: Sequence[str]) -> dict[str, RunRecord]:
        """These runs by their ids; nothing of those that no worker has seen yet."""
        with self._database.transaction() as session:
            return {record.run_id: record for record in runs_of(session, run_ids)}

    def waiting(self, pool: str) -> list[RunRecord]:
        """Every run that waits in a pool, by priority and submission; `policy.plan` decides."""
        query = select(RunRow).where(RunRow.state == RunState.WAITING, RunRow.pool == pool)
        in_line = (col(RunRow.priority).desc(), col(RunRow.submitted_at), RunRow.run_id)
        return self._found(query.order_by(*in_line))

    def waiting_page(self, pool: str, after: str, limit: int) -> list[RunRecord]:
        """The *limit* waiting runs that follow the run *after*, by id."""
        waiting = RunRow.state == RunState.WAITING, RunRow.pool == pool, RunRow.run_id > after
        return self._found(select(RunRow).where(*waiting).order_by("run_id").limit(limit))

    def ranks(self, run_id: str, attempt: int) -> list[RunRecord]:
        """The parts of the run's attempt on other nodes that have begun, by rank."""
        parts = RunRow.gang_id == run_id, RunRow.attempt == attempt
        return self._found(select(RunRow).where(*parts).order_by("gang_rank"))

    def _found(self, query: SelectOfScalar[RunRow]) -> list[RunRecord]:
        with self._database.transaction() as session:
            return [run_record(row) for row in session.exec(query)]

    def set_reason(
        self, run_id: str, resource: Resource, reason: str, *, expected_start_at: datetime | None
    ) -> bool:
        """Keep what a waiting run waits for; True only when that is news."""
        with self._database.transaction() as session:
            row = run_row(session, run_id, lock=True)
            if row.state is not RunState.WAITING:
                return False
            news = (row.resource, row.reason) != (resource, reason)
            row.resource, row.reason = resource, reason
            row.expected_start_at = expected_start_at
            return news

    def set_reasons(self, reasons: Sequence[Reason]) -> None:
        """Keep what many waiting runs wait for, in one transaction; of others nothing changes."""
        if not reasons:
            return
        waiting = col(RunRow.state) == RunState.WAITING
        statement = update(RunRow).where(col(RunRow.run_id) == bindparam("of_run"), waiting)
        values = [
            {
                "of_run": each.run_id,
                "resource": each.resource,
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
            row = run_row(session, run_id, lock=True)
            row.prediction, row.demand = prediction, demand

    def begin(self, run_id: str, attempt: int, token: str, *, container: str, runtime: str) -> None:
        """The container is there and about to start. Idempotent for the same attempt.

        Raises:
            LeaseLost: *token* is not that of the run's live lease.
        """
        with self._database.transaction() as session:
            row = run_row(session, run_id, lock=True)
            lease = live_lease(session, run_id)
            if lease is None or lease.token != token or row.attempt != attempt:
                raise LeaseLost(number(lease) if lease else 0, run_id, "another attempt holds it")
            if row.state is not RunState.RUNNING:
                move(row, RunState.RUNNING)
                row.started_at = now(session)
                note_start(session, row)
            row.container, row.runtime = container, runtime

    def requeue(
        self,
        run_id: str,
        exit_: Exit,
        measurement: Measurement | None = None,
        *,
        demand_override: Mapping[str, Any] | None = None,
    ) -> None:
        """Back to the queue as the next attempt. The lease stays until the container is gone."""
        with self._database.transaction() as session:
            row = run_row(session, run_id, lock=True)
            note_end(session, row, exit_, measurement)
            end_warnings(session, run_id, row.attempt)
            move(row, RunState.WAITING)
            row.attempt += 1
            row.end(exit_)
            row.reason, row.resource, row.expected_start_at = exit_.message, None, None
            row.container = row.claimed_at = row.started_at = row.preempted_for = None
            row.preemptions += exit_.kind is ExitKind.PREEMPTED
            if demand_override is not None:
                row.demand_override = dict(demand_override)

    def preempt(self, run_id: str, for_run_id: str) -> bool:
        """Mark a running run as being stopped for another; False when it runs no more."""
        with self._database.transaction() as session:
            row = run_row(session, run_id, lock=True)
            if row.state is not RunState.RUNNING:
                return False
            row.preempted_for = for_run_id
            return True

    def finish(self, run_id: str, exit_: Exit, measurement: Measurement) -> bool:
        """End the run; the first end counts, later ones answer False."""
        with self._database.transaction() as session:
            row = run_row(session, run_id, lock=True)
            if row.state is RunState.ENDED:
                return False
            note_end(session, row, exit_, measurement)
            end_warnings(session, run_id, row.attempt)
            move(row, RunState.ENDED)
            row.ended_at = now(session)
            row.end(exit_)
            row.measurement = measurement
            row.reason, row.resource, row.expected_start_at = "", None, None
            return True

    def step_started(self, run_id: str, attempt: int, name: str) -> None:
        """A step begins, or begins again in the next process."""
        with self._database.transaction() as session:
            session.merge(
                StepRow(
                    run_id=run_id,
                    attempt=attempt,
                    name=name,
                    state=StepState.RUNNING,
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
            row.state, row.message, row.ended_at = state, message, now(session)

    def steps(self, run_id: str) -> list[Step]:
        """Every step of every attempt, in order of their start."""
        with self._database.transaction() as session:
            query = select(StepRow).where(StepRow.run_id == run_id).order_by("started_at")
            return [record(Step, row) for row in session.exec(query)]

    def lasted(self, limit: int) -> list[Lasted]:
        """What the runs lasted that ended well, the newest *limit* of them."""
        with self._database.transaction() as session:
            query = (
                select(RunRow.job, RunRow.owner, col(RunRow.measurement))
                .where(
                    col(RunRow.ended_at).is_not(None),
                    RunRow.exit_kind == ExitKind.OK,
                    col(RunRow.gang_id).is_(None),
                )
                .order_by(col(RunRow.ended_at).desc())
                .limit(limit)
            )
            return [
                Lasted(kind_of(job, owner), measured.runtime_s)
                for job, owner, measured in session.exec(query)
                if measured and measured.runtime_s
            ]

    def counts(self) -> dict[RunState, int]:
        """How many runs are in each state."""
        with self._database.transaction() as session:
            query = select(RunRow.state, func.count()).group_by(col(RunRow.state))
            found = dict(session.exec(query).all())
            return {state: found.get(state, 0) for state in RunState}
