"""Election: one row for each pool says who schedules it, in which term, and until when.

The row is the lock: a session's lock or an advisory one stays with a process that was stopped, and
passes no pooler of transactions.
"""

from datetime import datetime, timedelta

from sqlalchemy import func, update
from sqlmodel import Session, col, select

from headway.ledger.columns import db_now, from_now, insert_new, now
from headway.ledger.database import Repository
from headway.ledger.errors import TermOver
from headway.ledger.tables import LeaderRow
from headway.model.term import Leader, Term

LEADS_S = 5.0
"""A leader that was not heard of for so long is replaced."""
_UNLED = timedelta(minutes=1)
"""Where nobody took its place for so long, nobody is there who could."""
_LETS_GO = func.set_config("idle_in_transaction_session_timeout", "6000", True)
"""Ends this transaction after so many milliseconds without a word."""


class Leaders(Repository):
    """The leader of each pool."""

    def contend(
        self, pool: str, node: str, holder: str, *, ttl_s: float, after_s: float = 0.0
    ) -> Leader:
        """Begin to lead *pool* or go on, where nobody else does; who leads it now.

        Args:
            pool: The work pool.
            node: The node of who contends.
            holder: The process there; it leads at once in the place of an earlier one of its node.
            ttl_s: Seconds that it leads from now on, unless it contends again.
            after_s: Only where the leader's time has been over for so long.
        """
        with self._database.transaction() as session:
            if after_s == 0.0 and (leads := _go_on(session, pool, holder, ttl_s)) is not None:
                return leads
            _let_go_when_stopped(session)
            row = session.get(LeaderRow, pool, with_for_update=True)
            if row is None:
                first = LeaderRow(pool=pool, term=0, node="", holder="", expires_at=now(session))
                insert_new(session, first)  # unless another one did at this moment
                row = session.get_one(LeaderRow, pool, with_for_update=True)
            moment = now(session)
            own = row.node == node and after_s == 0.0
            if own or row.expires_at + timedelta(seconds=after_s) <= moment:
                if row.holder != holder:
                    row.term, row.node, row.holder = row.term + 1, node, holder
                row.expires_at = moment + timedelta(seconds=ttl_s)
            return _leader(row, moment)

    def of(self, pool: str) -> Leader | None:
        """Who leads *pool*; None before anybody has."""
        with self._database.reading() as session:
            row = session.get(LeaderRow, pool)
            return None if row is None else _leader(row, now(session))

    def unled(self, by: str) -> list[str]:
        """Pools that nobody has led for a while, as one whose last node was removed.

        Somebody must tell of their runs: of those who lead, the leader of the first pool by name.

        Args:
            by: The pool of who asks; none for all but that one.
        """
        with self._database.reading() as session:
            rows = session.exec(select(LeaderRow.pool, LeaderRow.expires_at).order_by("pool")).all()
            moment = now(session)
        left = {pool: until - moment for pool, until in rows}
        led = [pool for pool, time_left in left.items() if time_left > timedelta(0)]
        return [pool for pool in left if left[pool] < -_UNLED] if led[:1] == [by] else []


def _go_on(session: Session, pool: str, holder: str, ttl_s: float) -> Leader | None:
    """*holder* goes on, if it leads still: in one statement, since that is done each second."""
    own = col(LeaderRow.pool) == pool, col(LeaderRow.holder) == holder
    still = col(LeaderRow.expires_at) > db_now()
    until = from_now(timedelta(seconds=ttl_s))
    query = update(LeaderRow).where(*own, still).values(expires_at=until)
    # Within the statement: between this and its end the process may be stopped.
    terms = query.returning(col(LeaderRow.term), col(LeaderRow.node), _LETS_GO)
    row = session.execute(terms).one_or_none()
    return None if row is None else Leader(Term(pool, row.term), row.node, holder, ttl_s)


def _let_go_when_stopped(session: Session) -> None:
    """Have the database end this transaction when the process says nothing more for a while.

    One that was stopped (SIGSTOP, a machine that was suspended) would keep the row from those who
    contend for as long as other transactions may last.
    """
    session.execute(select(_LETS_GO))


def _leader(row: LeaderRow, moment: datetime) -> Leader:
    left_s = (row.expires_at - moment).total_seconds()
    return Leader(Term(row.pool, row.term), row.node, row.holder, left_s)


def in_term(session: Session, term: Term) -> None:
    """Keep *term* from ending until the transaction has.

    Raises:
        TermOver: Another term has begun.
    """
    query = select(LeaderRow.term, _LETS_GO).where(col(LeaderRow.pool) == term.pool)
    found, _ = session.exec(query.with_for_update(read=True)).one_or_none() or (0, "")
    if found != term.number:
        raise TermOver(term.pool, term.number, found)
