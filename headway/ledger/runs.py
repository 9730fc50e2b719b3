"""Runs: their place in the queue, their attempts and exits. What an attempt writes is fenced."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete
from sqlmodel import Session, col

from headway.errors import InvalidInput, LeaseLost
from headway.ledger.attempts import exit_of, note_end, note_start
from headway.ledger.columns import insert_new, now
from headway.ledger.errors import IllegalTransition
from headway.ledger.fences import ended_before, fenced, fenced_lease, requeued_before
from headway.ledger.following import after_columns
from headway.ledger.leaders import in_term
from headway.ledger.lease_rows import release_all
from headway.ledger.notices import note_ended, note_started
from headway.ledger.records import RunRecord
from headway.ledger.run_reads import RunReads
from headway.ledger.run_rows import ask_for_least, move, run_record, run_row, write_many
from headway.ledger.tables import GangAskRow, LeaseRow, RunRow
from headway.ledger.warnings import end_warnings
from headway.model.lease import Demand, Fence, Resource
from headway.model.run import GRANTED, Exit, ExitKind, Measurement, Prediction, RunState
from headway.model.term import Term


@dataclass(frozen=True, slots=True)
class Reason:
    """What one run waits for."""

    run_id: str
    resource: Resource
    reason: str
    expected_start_at: datetime | None


class Runs(RunReads):
    """The run table: what `RunReads` reads, and every change of it."""

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
            **after_columns(job),
        )
        with self._database.transaction() as session:
            insert_new(session, row)
            return run_record(run_row(session, run_id))

    def set_reasons(self, reasons: Sequence[Reason], term: Term) -> None:
        """Keep what many waiting runs wait for, in one transaction; of others nothing changes.

        Raises:
            TermOver: Another scheduler leads the pool by now.
        """
        if not reasons:
            return
        with self._database.transaction() as session:
            in_term(session, term)
            rows = [asdict(each) for each in reasons]
            write_many(session, rows, col(RunRow.state) == RunState.WAITING)

    def predict(self, fence: Fence, prediction: Prediction, demand: Demand) -> None:
        """Keep what was said before the start.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run, _ = fenced(session, fence)
            run.prediction, run.demand = prediction, demand

    def begin(self, fence: Fence, *, container: str, runtime: str, ttl_s: float) -> None:
        """The container is there and about to start. Idempotent.

        The lease is renewed with it: the node's guard, which may have died meanwhile, counts
        the time of a container that it never renewed from the container's start.

        Raises:
            LeaseLost: Another attempt or another lease has the run, or none.
        """
        with self._database.transaction() as session:
            run, lease = fenced_lease(session, fence)
            run.container, run.runtime = container, runtime
            if run.state is not RunState.RUNNING:
                move(run, RunState.RUNNING)
                run.started_at = now(session)
                renewed = run.started_at + timedelta(seconds=ttl_s)
                lease.expires_at = max(lease.expires_at, renewed)
                note_start(session, run)
                note_started(session, run)

    def ready(self, fence: Fence) -> None:
        """Data and image of a part of a gang are there: it can start with the others. Idempotent.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run, _ = fenced(session, fence)
            if run.ready_attempt != run.attempt:
                run.ready_attempt, run.place = run.attempt, None

    def placed(self, fence: Fence, place: str) -> None:
        """Say where the others of its gang reach its container, as ``ADDRESS:PORT``.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run, _ = fenced(session, fence)
            run.ready_attempt, run.place = run.attempt, place

    def requeue(
        self,
        fence: Fence,
        exit_: Exit,
        measurement: Measurement | None = None,
        *,
        demand_override: Mapping[str, Any] | None = None,
    ) -> Exit:
        """Back to the queue as the next attempt. The lease stays until the container is gone.

        Idempotent: a second call changes nothing. Nor does one for a run that
        was ended meanwhile, as by its user.

        Returns:
            How the attempt ended, as the ledger has it.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run = run_row(session, fence.run_id, lock=True)
            known = _known_end(session, run, fence)
            if known is not None:
                return known
            fenced(session, fence, run)
            _next_attempt(session, run, exit_, measurement)
            if demand_override is not None:
                run.demand_override = dict(demand_override)
            return exit_

    def conclude_lost(self, fence: Fence, exit_: Exit, margin_s: float, *, again: bool) -> bool:
        """`requeue` or `finish` a gang whose leader's node is lost, and release all that it held.

        In one transaction: a node that is heard of again renews the lease, or finds it gone.

        Args:
            fence: The gang's attempt.
            exit_: How that ended.
            margin_s: Only where its lease expired so long ago: nothing runs there any more.
            again: Whether there is to be another attempt.

        Returns:
            False where it has not.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run, lease = fenced(session, fence)
            if lease is None or lease.expires_at >= now(session) - timedelta(seconds=margin_s):
                return False
            if run.state not in GRANTED:
                return False
            if again:
                _next_attempt(session, run, exit_, None)
            else:
                _end(session, run, exit_, Measurement())
            release_all(session, LeaseRow.run_id == fence.run_id)
            # Its leader, which would do so, is gone.
            session.exec(delete(GangAskRow).where(col(GangAskRow.gang_id) == fence.run_id))
            return True

    def suspend(self, fence: Fence, exit_: Exit) -> None:
        """Back to the queue as the next attempt, which waits until it is resumed. Idempotent.

        A run that waits keeps its attempt; one that was ended meanwhile stays so.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run = run_row(session, fence.run_id, lock=True)
            if _known_end(session, run, fence) is not None:
                return
            _, lease = fenced(session, fence, run)
            if run.state is not RunState.WAITING:
                _next_attempt(session, run, exit_, None)
                if lease is not None:
                    lease.start_by = None  # whoever is about to take it up finds the next attempt
            run.suspended_at = run.suspended_at or now(session)
            run.reason, run.resource, run.expected_start_at = exit_.message, None, None

    def resume(self, run_id: str) -> bool:
        """Let a suspended run start again; False when it was not suspended."""
        with self._database.transaction() as session:
            run = run_row(session, run_id, lock=True)
            was = run.suspended_at is not None
            run.suspended_at = None
            return was

    def finish(self, fence: Fence, exit_: Exit, measurement: Measurement) -> Exit:
        """End the run. Idempotent: the first end counts, later ones change nothing.

        Returns:
            How the run ended, as the ledger has it.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run = run_row(session, fence.run_id, lock=True)
            if ended_before(session, run, fence):
                return run.exit() or exit_
            fenced(session, fence, run)
            _end(session, run, exit_, measurement)
            return exit_

    def retry(self, run_id: str, attempt: int) -> bool:
        """Put a run that has ended with *attempt* back to the queue as its next one.

        Idempotent: however many see that its user wants it, it is tried again once.

        Returns:
            Whether it waits; False when another attempt has begun since.

        Raises:
            IllegalTransition: It has not ended.
            InvalidInput: It is a part of a gang.
        """
        with self._database.transaction() as session:
            run = run_row(session, run_id, lock=True)
            if run.gang_id is not None:
                raise InvalidInput("run", run_id, f"retry the run that leads it: {run.gang_id}")
            if run.attempt != attempt:
                return run.state is RunState.WAITING and run.attempt == attempt + 1
            if run.state is not RunState.ENDED:
                raise IllegalTransition(run_id, run.state, RunState.WAITING)
            move(run, RunState.WAITING)
            ask_for_least(run)
            run.attempt += 1
            run.exit_kind, run.exit_code, run.exit_message = None, None, ""
            run.ended_at = run.told_end_at = run.measurement = None
            run.container = run.claimed_at = run.started_at = run.preempted_for = None
            run.flow_starts, run.flow_starts_since = 0, None
            run.tag = run.promised_at = None  # it joins the queue anew
            run.reason = "its user asked for another attempt"
            return True

    def told(self, run_id: str, attempt: int) -> bool:
        """Prefect was seen in the state that the end of *attempt* calls for.

        Returns:
            False when the run has not ended so: it was tried again since.
        """
        with self._database.transaction() as session:
            run = run_row(session, run_id, lock=True)
            if run.state is not RunState.ENDED or run.attempt != attempt:
                return False
            run.told_end_at = run.told_end_at or now(session)
            return True

    def preempt(self, fence: Fence, for_run_id: str, term: Term) -> bool:
        """Mark a running attempt as being stopped for another run, or to go on larger itself.

        Returns:
            False when it runs no more, or the other one waits no more.

        Raises:
            TermOver: Another scheduler leads the pool by now.
        """
        with self._database.transaction() as session:
            in_term(session, term)
            try:
                run, _ = fenced(session, fence)
            except LeaseLost:
                return False
            waits = run.run_id == for_run_id or (
                run_row(session, for_run_id).state is RunState.WAITING
            )
            if run.state is not RunState.RUNNING or not waits:
                return False
            run.preempted_for = for_run_id
            return True


def _known_end(session: Session, run: RunRow, fence: Fence) -> Exit | None:
    """How *fence*'s attempt ended, where it was requeued before or its run was ended."""
    if ended_before(session, run, fence):
        return run.exit()
    if requeued_before(session, run, fence):
        return exit_of(session, fence)
    return None


def _end(session: Session, run: RunRow, exit_: Exit, measurement: Measurement) -> None:
    """The run has ended so."""
    ended_at = note_end(session, run, exit_, measurement)
    end_warnings(session, run.run_id, run.attempt)
    move(run, RunState.ENDED)
    run.ended_at = ended_at
    run.end(exit_)
    run.measurement, run.suspended_at = measurement, None
    run.reason, run.resource, run.expected_start_at = "", None, None
    note_ended(session, run)


def _next_attempt(
    session: Session, run: RunRow, exit_: Exit, measurement: Measurement | None
) -> None:
    """The run's attempt has ended so; it waits as its next one."""
    note_end(session, run, exit_, measurement)
    end_warnings(session, run.run_id, run.attempt)
    move(run, RunState.WAITING)
    ask_for_least(run)
    run.attempt += 1
    run.end(exit_)
    run.reason, run.resource, run.expected_start_at = exit_.message, None, None
    run.container = run.claimed_at = run.started_at = run.preempted_for = None
    run.preemptions += exit_.kind is ExitKind.PREEMPTED
