"""What people are to be told: written with the act that it tells of, and taken once."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, exists
from sqlmodel import Session, col, or_, select

from headway.ledger.array_tables import ArrayRow
from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.observed_tables import NoticeRow
from headway.ledger.tables import RunRow
from headway.model.notice import LONG_WAIT_S, Notice, NoticeKind
from headway.model.run import RunState

_AT_ONCE = 20


class Notices(Repository):
    """The notice table."""

    def take(self) -> list[Notice]:
        """Some of the notices that nobody has taken yet, oldest first; they are the caller's now.

        Whoever dies before it has sent them has lost them: to be told twice is the worse of both.
        """
        untaken = select(NoticeRow).where(col(NoticeRow.taken_at).is_(None), _is_due())
        with self._database.reading() as session:  # most of the time there is none
            if session.exec(untaken.limit(1)).first() is None:
                return []
        with self._database.transaction() as session:
            oldest = untaken.order_by("notice_id").limit(_AT_ONCE)
            found = list(session.exec(oldest.with_for_update(skip_locked=True)))
            for row in found:
                row.taken_at = now(session)
            return [record(Notice, row) for row in found]

    def not_sent(self, notice: Notice, why: str) -> None:
        """Keep why *notice*, which was taken, could not be sent."""
        with self._database.transaction() as session:
            row = session.get_one(NoticeRow, notice.notice_id)
            row.error = why[:500]

    def of_run(self, run_id: str) -> list[Notice]:
        """The notices of a run, oldest first."""
        query = select(NoticeRow).where(NoticeRow.run_id == run_id).order_by("notice_id")
        return self._records(Notice, query)


def note_started(session: Session, run: RunRow) -> None:
    """*run* starts: whoever has waited long for it is told. Its state has changed already."""
    if run.attempt > 1 or run.array_id is not None or run.started_at is None:
        return
    if (run.started_at - run.submitted_at).total_seconds() >= LONG_WAIT_S:
        _tell(session, run, NoticeKind.STARTED)


def note_ended(session: Session, run: RunRow) -> None:
    """*run* has ended. Of the members of an array nobody is told one by one."""
    if run.array_id is None:
        _tell(session, run, NoticeKind.ENDED)


def note_array(session: Session, array_id: str, job: Mapping[str, Any]) -> None:
    """An array was handed in: its notice waits until the last member has ended."""
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
        session.add(NoticeRow(run_id=run.run_id, kind=kind, block=block, made_at=now(session)))


def _blocks(job: Mapping[str, Any]) -> Iterable[str]:
    """Where the job wants it told; a row of the run table may hold anything."""
    asked = job.get("notify") if job else None
    wanted = asked if isinstance(asked, list) else []
    return dict.fromkeys(block for block in wanted if isinstance(block, str))
