"""Tags and promises of runs, and the virtual clock of their pool: written once, in one go."""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, update
from sqlmodel import Session, col

from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.tables import RunRow, SettingRow
from headway.model.turn import Turn, VirtualClock

log = logging.getLogger(__name__)


class Turns(Repository):
    """What makes the order of a queue the same on every node and after every restart."""

    def keep(self, pool: str, clock: VirtualClock, turns: Mapping[str, Turn]) -> None:
        """Keep what was computed at *clock*; what a run has already is never changed.

        Args:
            pool: The work pool.
            clock: Its virtual clock; an older one than is kept changes nothing.
            turns: By run, those that are new in part or in whole.
        """
        with self._database.transaction() as session:
            row = session.get(SettingRow, _name(pool), with_for_update=True)
            known = None if row is None else _read(row)
            if known is None or known.at <= clock.at:
                document = _CLOCK.dump_python(clock, mode="json")
                session.merge(
                    SettingRow(name=_name(pool), document=document, updated_at=now(session))
                )
            for run_id, turn in sorted(turns.items()):  # all lock in one order
                of_run = col(RunRow.run_id) == run_id
                _set(session, of_run, RunRow.tag, turn.tag)
                _set(session, of_run, RunRow.promised_at, turn.promised_at)


def _set(session: Session, of_run: ColumnElement[bool], column: Any, value: Any) -> None:
    """Set *column* where it was not set before."""
    session.execute(update(RunRow).where(of_run, col(column).is_(None)).values({column: value}))


def clock_of(session: Session, pool: str) -> VirtualClock | None:
    """The virtual clock of *pool*; None before its first run."""
    row = session.get(SettingRow, _name(pool))
    return None if row is None else _read(row)


def _read(row: SettingRow) -> VirtualClock | None:
    """The clock of *row*; one that cannot be read is as none: the order begins anew from now."""
    try:
        return _CLOCK.validate_python(row.document)
    except ValidationError:
        log.warning("%s in the ledger cannot be read: %r", row.name, row.document)
        return None


def _name(pool: str) -> str:
    return f"virtual_clock/{pool}"


_CLOCK = TypeAdapter(VirtualClock)
