"""Arrays: what was submitted once, and which of its members have become runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import func, or_
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import RunUnknown
from headway.ledger.array_rows import HAS_MORE
from headway.ledger.array_tables import ArrayRow
from headway.ledger.attempts import note_end
from headway.ledger.codec import record
from headway.ledger.columns import among, insert_new, now
from headway.ledger.database import Repository
from headway.ledger.following import after_columns
from headway.ledger.notices import note_array
from headway.ledger.records import ArrayRecord, RunRecord
from headway.ledger.run_rows import by_id, check_askable, chosen, move, run_record
from headway.ledger.tables import RunRow
from headway.model.array import Array, member_job, member_name
from headway.model.run import Exit, ExitKind, Measurement, RunState


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """How many members of an array that have become runs are in which state."""

    waiting: int = 0
    running: int = 0
    """With those that are being started."""
    ended_well: int = 0
    failed: int = 0
    cancelled: int = 0

    def waiting_of(self, array: ArrayRecord) -> int:
        """How many members of *array*, whose counts these are, have still to start."""
        return self.waiting + (0 if array.cancelled_at else array.size - array.created)


class Arrays(Repository):
    """The table of arrays, and the members in the run table."""

    def add(
        self,
        job: Mapping[str, Any],
        array: Array,
        *,
        name: str,
        owner: str,
        team: str,
        pool: str,
        queue: str,
        key: str | None,
        submitted_at: datetime,
    ) -> ArrayRecord:
        """Keep an array. Idempotent: a known *key* gives back the array that it was given for."""
        row = ArrayRow(
            array_id=str(uuid4()),
            name=name,
            owner=owner,
            team=team,
            pool=pool,
            queue=queue,
            key=key,
            job=dict(job),
            parameters=array.document(),
            size=array.size,
            at_most=array.at_most,
            submitted_at=submitted_at,
        )
        with self._database.transaction() as session:
            if insert_new(session, row):
                note_array(session, row.array_id, job)
            same = ArrayRow.key == key if key else ArrayRow.array_id == row.array_id
            return record(ArrayRecord, session.exec(select(ArrayRow).where(same)).one())

    def get(self, array_id: str) -> ArrayRecord:
        """The array with this id. Raises `RunUnknown`."""
        with self._database.reading() as session:
            return record(ArrayRecord, _row(session, array_id))

    def find(self, text: str, *, team: str | None = None, owner: str | None = None) -> ArrayRecord:
        """The array with this id, id prefix or name; of several of one name the newest.

        A name that a newer run has, which is no member of an array, means that run.

        Args:
            text: Id, prefix or name.
            team: Only an array of this team; None for any.
            owner: Of several of one name theirs come before all others.

        Raises:
            RunUnknown: There is none.
        """
        check_askable(text)
        query = chosen(ArrayRow, team=team)
        with self._database.reading() as session:
            row = by_id(session, query, ArrayRow.array_id, text)
            if row is None:
                whose = col(ArrayRow.owner) != (owner or "")
                named = query.where(ArrayRow.name == text).order_by(whose, _NEWEST)
                row = session.exec(named.limit(1)).first()
                if row is not None and _means_a_run(session, row, owner):
                    row = None
            if row is None:
                raise RunUnknown(text)
            return record(ArrayRecord, row)

    def listed(
        self,
        limit: int,
        *,
        team: str | None = None,
        owner: str | None = None,
        name: str = "",
        since: datetime | None = None,
    ) -> list[ArrayRecord]:
        """The newest *limit* arrays, newest first; `chosen` has the other arguments."""
        query = chosen(ArrayRow, team=team, owner=owner, name=name, since=since)
        return self._records(
            ArrayRecord, query.order_by(_NEWEST, col(ArrayRow.array_id).desc()).limit(limit)
        )

    def of(self, array_ids: Sequence[str]) -> dict[str, ArrayRecord]:
        """These arrays by their ids."""
        query = select(ArrayRow).where(among(ArrayRow.array_id, array_ids))
        return {each.array_id: each for each in self._records(ArrayRecord, query)}

    def going_on(self) -> list[ArrayRecord]:
        """Arrays of which a member waits, runs, or is still to become a run; the newest first."""
        under_way = select(RunRow.array_id).where(
            RunRow.state != RunState.ENDED, col(RunRow.array_id).is_not(None)
        )
        going = or_(HAS_MORE, col(ArrayRow.array_id).in_(under_way))
        return self._records(ArrayRecord, select(ArrayRow).where(going).order_by(_NEWEST))

    def waiting(self, team: str, user: str) -> tuple[int, int]:
        """How many runs, and members that are none yet, wait of *team*, and of *user* in it."""
        runs = select(RunRow.owner, func.count()).where(
            RunRow.team == team, RunRow.state == RunState.WAITING, col(RunRow.gang_id).is_(None)
        )
        members = select(ArrayRow.owner, func.sum(ArrayRow.size - ArrayRow.created)).where(
            ArrayRow.team == team, col(ArrayRow.cancelled_at).is_(None)
        )
        with self._database.reading() as session:
            found = [
                *session.exec(runs.group_by(RunRow.owner)),
                *session.exec(members.group_by(ArrayRow.owner)),
            ]
        own = (number for owner, number in found if owner == user)
        return int(sum(number for _, number in found)), int(sum(own))

    def due(self, pool: str, ahead: int = 1) -> list[ArrayRecord]:
        """Arrays of *pool* of which the next member is to become a run: fewer than *ahead* wait."""
        waits = select(func.count()).where(
            RunRow.array_id == ArrayRow.array_id,
            RunRow.state == RunState.WAITING,
            col(RunRow.suspended_at).is_(None),
        )
        few = waits.scalar_subquery() < ahead
        query = select(ArrayRow).where(ArrayRow.pool == pool, HAS_MORE, few)
        return self._records(ArrayRecord, query.order_by("submitted_at"))

    def join(self, array_id: str, index: int, run_id: str) -> RunRecord | None:
        """The member *index* is the run *run_id* from now on, and waits. Idempotent.

        The first run counts that comes with an index, whoever brings it. A member of an array
        that was cancelled meanwhile has ended so.

        Returns:
            The run; None where there is no such member, or another run is it.
        """
        with self._database.transaction() as session:
            array = session.get(ArrayRow, array_id, with_for_update=True)
            if array is None or not 1 <= index <= array.size:
                return None
            member = session.exec(_members(array_id).where(RunRow.array_index == index)).first()
            if member is None:
                member = _member(session, array, index, run_id)
                array.created = max(array.created, index)
                session.flush()
            return run_record(member) if member.run_id == run_id else None

    def cancel(self, array_id: str, by: str) -> None:
        """Let no more of its members become runs; *by* says who asked. Idempotent.

        One that is over stays as it ended.
        """
        with self._database.transaction() as session:
            row = _row(session, array_id, lock=True)
            under_way = _members(array_id).where(RunRow.state != RunState.ENDED).limit(1)
            goes_on = row.created < row.size or session.exec(under_way).first() is not None
            if row.cancelled_at is None and goes_on:
                row.cancelled_at, row.cancelled_by = now(session), by

    def reopen(self, array_id: str) -> None:
        """Let the members that have not become runs yet do so after all. Idempotent."""
        with self._database.transaction() as session:
            row = _row(session, array_id, lock=True)
            row.cancelled_at, row.cancelled_by = None, ""

    def members(
        self,
        array_id: str,
        states: Sequence[RunState] = tuple(RunState),
        *,
        limit: int | None = None,
    ) -> list[RunRecord]:
        """Its members in any of *states* that have become runs, in order; the first *limit*."""
        query = _members(array_id).where(col(RunRow.state).in_(states)).order_by("array_index")
        with self._database.reading() as session:
            return [run_record(row) for row in session.exec(query.limit(limit))]

    def lasted_s(self, array_id: str, limit: int) -> list[float]:
        """How long the newest *limit* of its members ran that ended well."""
        query = _members(array_id).where(RunRow.exit_kind == ExitKind.OK)
        newest = query.order_by(col(RunRow.ended_at).desc()).limit(limit)
        with self._database.reading() as session:
            measured = [row.measurement for row in session.exec(newest)]
        return [each.runtime_s for each in measured if each and each.runtime_s]

    def counts(self, array_ids: Sequence[str]) -> dict[str, MemberCounts]:
        """How many members of each array are in which state."""
        known = select(RunRow.array_id, RunRow.state, RunRow.exit_kind, func.count())
        query = known.where(col(RunRow.array_id).in_(array_ids)).group_by(
            col(RunRow.array_id), col(RunRow.state), col(RunRow.exit_kind)
        )
        found = dict.fromkeys(array_ids, MemberCounts())
        with self._database.reading() as session:
            for array_id, state, exit_kind, number in session.exec(query) if array_ids else ():
                counted, name = found[str(array_id)], _counted_as(state, exit_kind)
                more = {name: getattr(counted, name) + number}
                found[str(array_id)] = replace(counted, **more)
        return found


_NEWEST = col(ArrayRow.submitted_at).desc()


_COUNTED = {
    RunState.WAITING: "waiting",
    RunState.CLAIMED: "running",
    RunState.RUNNING: "running",
}


def _counted_as(state: str, exit_kind: str | None) -> str:
    """The field of `MemberCounts` for such a run."""
    if state != RunState.ENDED:
        return _COUNTED[RunState(state)]
    if exit_kind == ExitKind.CANCELLED:
        return "cancelled"
    return "ended_well" if exit_kind == ExitKind.OK else "failed"


def _row(session: Session, array_id: str, *, lock: bool = False) -> ArrayRow:
    row = session.get(ArrayRow, array_id, with_for_update=lock or None)
    if row is None:
        raise RunUnknown(array_id)
    return row


def _members(array_id: str) -> SelectOfScalar[RunRow]:
    return select(RunRow).where(RunRow.array_id == array_id)


def _means_a_run(session: Session, array: ArrayRow, owner: str | None) -> bool:
    """Whether the name of *array* means a run: of *owner*'s own things the newest, else of all."""
    meant = col(RunRow.submitted_at) > array.submitted_at
    if owner is not None:
        own = col(RunRow.owner) == owner
        meant = meant & own if owner == array.owner else meant | own
    query = select(RunRow.run_id).where(
        RunRow.name == array.name, RunRow.team == array.team, col(RunRow.array_id).is_(None), meant
    )
    return session.exec(query.limit(1)).first() is not None


def _member(session: Session, array: ArrayRow, index: int, run_id: str) -> RunRow:
    """The row of a new member; it waits, or has ended where its array was cancelled."""
    job = member_document(array, index)
    run = RunRow(
        run_id=run_id,
        name=member_name(array.name, index),
        owner=array.owner,
        team=array.team,
        pool=array.pool,
        queue=array.queue,
        array_id=array.array_id,
        array_index=index,
        job=job,
        state=RunState.WAITING,
        submitted_at=now(session),
        **after_columns(job),
    )
    session.add(run)
    session.flush()
    if array.cancelled_at is not None:
        exit_ = Exit(ExitKind.CANCELLED, None, f"its array was cancelled {array.cancelled_by}")
        note_end(session, run, exit_, Measurement())
        move(run, RunState.ENDED)
        run.ended_at = now(session)
        run.end(exit_)
    return run


def member_document(array: ArrayRow | ArrayRecord, index: int) -> dict[str, Any]:
    """What the member *index* of *array* runs."""
    return member_job(array.job, kept_array(array).parameters(index))


def kept_array(array: ArrayRow | ArrayRecord) -> Array:
    """The parameters of *array* as the ledger keeps them: they were checked when it was added."""
    given = array.parameters
    if "members" in given:
        return Array({}, tuple(given["members"]), array.at_most)
    return Array({name: tuple(values) for name, values in given["parameters"]}, (), array.at_most)
