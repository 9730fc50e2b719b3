"""Tags and promises of runs, and the virtual clock of their pool."""

from collections.abc import Mapping

from sqlmodel import Session, col

from headway.ledger.codec import kept, to_json
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.leaders import in_term
from headway.ledger.run_rows import write_many
from headway.ledger.tables import RunRow, SettingRow
from headway.model.term import Term
from headway.model.turn import Turn, VirtualClock


class Turns(Repository):
    """What makes the order of a queue the same after every restart."""

    def keep(self, term: Term, clock: VirtualClock, turns: Mapping[str, Turn]) -> None:
        """Keep what was computed at *clock*; what a run has already is never changed.

        Args:
            term: In which it was.
            clock: The virtual clock of its pool.
            turns: By run, those that are new in part or in whole.

        Raises:
            TermOver: Another scheduler leads the pool by now.
        """
        name, document = _name(term.pool), to_json(clock)
        with self._database.transaction() as session:
            in_term(session, term)
            session.merge(SettingRow(name=name, document=document, updated_at=now(session)))
            tags = [{"run_id": run, "tag": turn.tag} for run, turn in turns.items()]
            write_many(session, tags, col(RunRow.tag).is_(None))
            promises = [
                {"run_id": run, "promised_at": turn.promised_at}
                for run, turn in turns.items()
                if turn.promised_at
            ]
            write_many(session, promises, col(RunRow.promised_at).is_(None))


def clock_of(session: Session, pool: str) -> VirtualClock | None:
    """The virtual clock of *pool*; None before its first run.

    One that cannot be read is as none: the order begins anew from now.
    """
    row = session.get(SettingRow, _name(pool))
    return None if row is None else kept(VirtualClock, row.document)


def _name(pool: str) -> str:
    return f"virtual_clock/{pool}"
