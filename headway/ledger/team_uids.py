"""The range of uids of each team: allotted once, never to two teams, and never moved."""

from collections.abc import Mapping

from sqlalchemy import func
from sqlmodel import Session, select

from headway.ledger.access_tables import TeamUidsRow
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.model.number_range import NumberRange
from headway.policy.team_uids import agree, allot

_LOCK = 0x75696473  # "uids": an advisory lock's number


class TeamUids(Repository):
    """The team_uids table. Rows are only added."""

    def of(self, team: str, pool: NumberRange) -> NumberRange:
        """The range of *team*; the first free one of *pool* from now on where it had none.

        Raises:
            InvalidInput: No more is free in *pool*.
        """
        with self._database.reading() as session:
            row = session.get(TeamUidsRow, team)
        if row is not None:
            return _range(row)
        with self._database.transaction() as session:
            taken = _locked(session)
            found = taken.get(team) or allot(team, taken, pool)
            if team not in taken:
                _add(session, team, found)
            return found

    def settle(self, asked: Mapping[str, NumberRange]) -> None:
        """Note the ranges that an operator named.

        Raises:
            InvalidInput: A team has another one already, or one is not free; nothing is noted.
        """
        if not asked:
            return
        with self._database.transaction() as session:
            for team, found in agree(_locked(session), asked).items():
                _add(session, team, found)

    def all(self) -> dict[str, NumberRange]:
        """Every team that has a range."""
        with self._database.reading() as session:
            return {row.team: _range(row) for row in session.exec(select(TeamUidsRow))}


def _locked(session: Session) -> dict[str, NumberRange]:
    """Every range, with nobody else adding one until the transaction ends."""
    session.exec(select(func.pg_advisory_xact_lock(_LOCK)))  # no login of a node may lock tables
    return {row.team: _range(row) for row in session.exec(select(TeamUidsRow))}


def _add(session: Session, team: str, found: NumberRange) -> None:
    session.add(
        TeamUidsRow(team=team, first=found.first, last=found.last, allotted_at=now(session))
    )


def _range(row: TeamUidsRow) -> NumberRange:
    return NumberRange(row.first, row.last)
