"""Tags and promises of runs, the virtual clock of their pool, and who is first in its queue."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Table, bindparam, update
from sqlmodel import Session, SQLModel, select

from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.tables import RunRow, SettingRow
from headway.model.turn import Front, Turn, VirtualClock

log = logging.getLogger(__name__)

_RUNS: Table = SQLModel.metadata.tables["run"]


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
            _set(session, RunRow.tag, {run: turn.tag for run, turn in turns.items()})
            promised = {run: turn.promised_at for run, turn in turns.items() if turn.promised_at}
            _set(session, RunRow.promised_at, promised)

    def announce(self, pool: str, front: Front) -> None:
        """Let the workers that follow know who is first in the queue of *pool*."""
        with self._database.transaction() as session:
            document = _FRONT.dump_python(front, mode="json")
            session.merge(
                SettingRow(name=_front_of(pool), document=document, updated_at=now(session))
            )

    def front(self, pool: str) -> Front | None:
        """What was announced last; None where nothing was, or nothing that can be read."""
        with self._database.reading() as session:
            row = session.get(SettingRow, _front_of(pool))
        try:
            return None if row is None else _FRONT.validate_python(row.document)
        except ValidationError:
            return None

    def announced_s(self, pool: str) -> float:
        """Seconds since the last announcement; infinity where there was none."""
        with self._database.reading() as session:
            query = select(SettingRow.updated_at).where(SettingRow.name == _front_of(pool))
            at = session.exec(query).one_or_none()
            return math.inf if at is None else (now(session) - at).total_seconds()


def _set(session: Session, column: Any, values: Mapping[str, Any]) -> None:
    """Set *column* of the runs of *values* where it was not set before; of thousands in one go."""
    if not values:
        return
    change = (
        update(_RUNS)
        .where(_RUNS.c.run_id == bindparam("of_run"), _RUNS.c[column.key].is_(None))
        .values({column.key: bindparam("to")})
    )
    rows = [{"of_run": run, "to": values[run]} for run in sorted(values)]  # all lock in one order
    session.connection().execute(change, rows)


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


def _front_of(pool: str) -> str:
    return f"front_of_the_queue/{pool}"


_CLOCK = TypeAdapter(VirtualClock)
_FRONT = TypeAdapter(Front)
