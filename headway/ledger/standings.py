"""Standings: how far each running run is, as its follower says; one row a run."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime

from sqlmodel import col, select

from headway.ledger.columns import now
from headway.ledger.database import Database
from headway.ledger.tables import StandingRow
from headway.model.attempt import Standing

_FIELDS = tuple(each.name for each in fields(Standing))


class Standings:
    """The standing table. Reading it costs the same however long a run has lasted."""

    def __init__(self, database: Database) -> None:
        """Work on *database*."""
        self._database = database

    def keep(self, standing: Standing) -> None:
        """Replace what was said of the run before; the time is the database's."""
        with self._database.transaction() as session:
            session.merge(StandingRow(**{**asdict(standing), "at": now(session)}))

    def of(self, run_ids: Sequence[str]) -> dict[str, Standing]:
        """What was said last of each run, by its id; nothing of those not followed yet."""
        if not run_ids:
            return {}
        with self._database.transaction() as session:
            query = select(StandingRow).where(col(StandingRow.run_id).in_(run_ids))
            return {
                row.run_id: Standing(**{name: getattr(row, name) for name in _FIELDS})
                for row in session.exec(query)
            }


NOT_KEPT_YET = datetime.min.replace(tzinfo=UTC)
"""The time of a `Standing` that is about to be kept: the ledger sets it."""
