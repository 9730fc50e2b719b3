"""What people are to be told: written with the act that it tells of, and taken once."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, exists
from sqlmodel import Session, col, or_, select

from headway.ledger.array_tables import ArrayRow
from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.observed_tables import NoticeRow
from headway.ledger.tables import RunRow, SettingRow
from headway.model.notice import LONG_WAIT_S, TRACKER, Notice, NoticeKind
from headway.model.run import RunState
from headway.policy.settings import LINE

_AT_ONCE = 20
_FOR_TRACKER = col(NoticeRow.block).startswith(f"{TRACKER}/")


class Notices(Repository):
    """The notice table."""

    def take(self) -> list[Notice]:
        """Some of the notices that nobody has taken yet, oldest first; they are the caller's now.

        Whoever dies before it has sent them has lost them: to be told twice is the worse of both.
        """
        for_people = col(NoticeRow.taken_at).is_(None), ~_FOR_TRACKER
        untaken = select(NoticeRow).where(*for_people, _is_due())
        with self._database.reading() as session:  # most of the time there is none
            if session.exec(untaken.limit(1)).first() is None:
                return []
        with self._database.transaction() as session:
            oldest = untaken.order_by("notice_id").limit(_AT_ONCE)
            found = list(session.exec(oldest.with_for_update(skip_locked=True)))
            for row in found:
                row.taken_at = now(session)
            return [record(Notice, row) for row in found]

    def trackers(self, pool: str) -> list[str]:
        """Those that have not taken each end of a run of *pool* yet."""
        query = select(NoticeRow.block).join(RunRow, col(NoticeRow.run_id) == col(RunRow.run_id))
        with self._database.reading() as session:
            return list(session.exec(query.where(*_untracked(pool)).distinct()))

    def untracked(self, pool: str, block: str, without: Collection[int]) -> list[Notice]:
        """Some ends of runs of *pool* that the tracker *block* has not taken yet.

        Those that it was never asked to take come first, the oldest before others. They stay
        until `tracked`. The notices *without* are left out.
        """
        query = (
            select(NoticeRow)
            .join(RunRow, col(NoticeRow.run_id) == col(RunRow.run_id))
            .where(*_untracked(pool), NoticeRow.block == block)
            .where(col(NoticeRow.notice_id).not_in(without))
            .order_by(col(NoticeRow.error) != "", col(NoticeRow.notice_id))
        )
        return self._records(Notice, query.limit(_AT_ONCE))

    def behind(self) -> list[Notice]:
        """For each tracker that has not taken an end that it is still to take, the oldest."""
        query = (
            select(NoticeRow)
            .where(col(NoticeRow.taken_at).is_(None), _FOR_TRACKER, NoticeRow.error != "")
            .distinct(col(NoticeRow.block))
        )
        return self._records(Notice, query.order_by("block", "notice_id"))

    def tracked(self, notice: Notice, why: str = "") -> None:
        """The tracker has taken *notice*, or never will: *why*."""
        with self._database.transaction() as session:
            row = session.get_one(NoticeRow, notice.notice_id)
            row.taken_at, row.error = now(session), why[:500]

    def not_sent(self, notice: Notice, why: str) -> None:
        """Keep why *notice* could not be sent."""
        with self._database.transaction() as session:
            row = session.get_one(NoticeRow, notice.notice_id)
            row.error = why[:500]

    def of_run(self, run_id: str) -> list[Notice]:
        """The notices of a run, oldest first."""
        query = select(NoticeRow).where(NoticeRow.run_id == run_id).order_by("notice_id")
        return self._records(Notice, query)


def _untracked(pool: str) -> tuple[ColumnElement[bool], ...]:
    return col(NoticeRow.taken_at).is_(None), _FOR_TRACKER, col(RunRow.pool) == pool


def note_started(session: Session, run: RunRow) -> None:
    """*run* starts: whoever has waited long for it is told. Its state has changed already."""
    if run.attempt > 1 or run.array_id is not None or run.started_at is None:
        return
    if (run.started_at - run.submitted_at).total_seconds() >= LONG_WAIT_S:
        _tell(session, run, NoticeKind.STARTED)


def note_ended(session: Session, run: RunRow) -> None:
    """*run* has ended. Of the members of an array trackers alone are told one by one."""
    if run.array_id is None:
        _tell(session, run, NoticeKind.ENDED)
    line = session.get(SettingRow, LINE)
    team = ((line and line.document) or {}).get("teams", {}).get(run.team, {})
    if run.gang_id is None and (tracker := team.get("tracker")):
        _add(session, run, NoticeKind.ENDED, tracker)


def note_array(session: Session, array_id: str, job: Mapping[str, Any]) -> None:
    """An array was submitted: its notice waits until the last member has ended."""
    for block in _blocks(job):
        kind = NoticeKind.ARRAY_ENDED
        session.add(NoticeRow(array_id=array_id, kind=kind, block=block, made_at=now(session)))


def _is_due() -> ColumnElement[bool]:
    """Notices of runs are due at once, those of arrays when all members have ended."""
    left = exists().where(
        col(RunRow.array_id) == NoticeRow.array_id, col(RunRow.state) != RunState.ENDED
    )
    complete = or_(col(ArrayRow.created) == ArrayRow.size, col(ArrayRow.cancelled_at).is_not(None))
    over = exists().where(col(ArrayRow.array_id) == NoticeRow.array_id, complete, ~left)
    return or_(col(NoticeRow.array_id).is_(None), over)


def _tell(session: Session, run: RunRow, kind: NoticeKind) -> None:
    if run.gang_id is not None:
        return  # the run that leads it is told of
    for block in _blocks(run.job):
        _add(session, run, kind, block)


def _add(session: Session, run: RunRow, kind: NoticeKind, block: str) -> None:
    session.add(NoticeRow(run_id=run.run_id, kind=kind, block=block, made_at=now(session)))


def _blocks(job: Mapping[str, Any]) -> Iterable[str]:
    """Where the job wants it told; a row of the run table may hold anything."""
    asked = job.get("notify") if job else None
    wanted = asked if isinstance(asked, list) else []
    return dict.fromkeys(block for block in wanted if isinstance(block, str))
