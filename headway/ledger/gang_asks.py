"""GangAsks: what parts of a gang ask each other to run. Each write is fenced by the part's own."""

from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import delete, func
from sqlalchemy.orm import defer
from sqlmodel import Session, col, select

from headway.errors import LeaseLost
from headway.ledger.codec import record
from headway.ledger.database import Repository
from headway.ledger.fences import fenced
from headway.ledger.tables import GangAskRow
from headway.model.lease import Fence

_RAN_OUT = 256
"""Added to the exit code of what ended where memory had run out."""
MOST_ASKS = 1000
"""Of one attempt: a launcher asks once or twice for each part."""


@dataclass(frozen=True, slots=True)
class GangAsk:
    """A command that one part of a gang asks another one to run."""

    ask_id: int
    from_rank: int
    name: str
    """By which the part that asks knows it."""
    to_rank: int
    exit_code: int | None
    """None until it has ended."""
    ran_out: bool = False
    """By then a process of that part was killed at its memory limit."""


class GangAsks(Repository):
    """The gang_ask table."""

    def ask(self, fence: Fence, name: str, to_rank: int, command: str) -> bool:
        """Ask part *to_rank* of the gang of *fence*'s run. Idempotent by *name*.

        Returns:
            False where its attempt has asked too often already.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            gang_id, attempt, rank = _part(session, fence)
            of_it = GangAskRow.gang_id == gang_id, GangAskRow.attempt == attempt
            own = GangAskRow.from_rank == rank, GangAskRow.name == name
            if session.exec(select(GangAskRow).where(*of_it, *own)).first() is not None:
                return True
            count = session.exec(select(func.count()).select_from(GangAskRow).where(*of_it)).one()
            if count >= MOST_ASKS:
                return False
            row = GangAskRow(
                gang_id=gang_id,
                attempt=attempt,
                from_rank=rank,
                name=name,
                to_rank=to_rank,
                command=command,
            )
            session.add(row)
            return True

    def of(self, gang_id: str, attempt: int) -> list[GangAsk]:
        """All of an attempt, oldest first.

        Each part asks for them twice a second, so without the commands: these may be megabytes.
        """
        with self._database.reading() as session:
            of_it = GangAskRow.gang_id == gang_id, GangAskRow.attempt == attempt
            query = select(GangAskRow).where(*of_it).order_by("ask_id")
            bare = query.options(defer(cast("Any", GangAskRow.command)))
            return [_ask(row) for row in session.exec(bare)]

    def command(self, ask_id: int) -> str | None:
        """What is to be run, for a shell; None where its attempt is over and it was removed."""
        with self._database.reading() as session:
            row = session.get(GangAskRow, ask_id)
            return None if row is None else row.command

    def ended(self, fence: Fence, ask_id: int, exit_code: int, *, ran_out: bool = False) -> None:
        """What the part of *fence* was asked for has ended. The first end counts.

        Nothing where the attempt is over, and what was asked in it removed.

        Args:
            fence: Of the part that was asked.
            ask_id: What it was asked.
            exit_code: Below 256.
            ran_out: By then a process of that part was killed at its memory limit.

        Raises:
            LeaseLost: Another attempt or another lease has the run, or it was asked another part.
        """
        with self._database.transaction() as session:
            part = _part(session, fence)
            row = session.get(GangAskRow, ask_id, with_for_update=True)
            if row is None:
                return
            if (row.gang_id, row.attempt, row.to_rank) != part:
                raise LeaseLost(fence.run_id, fence.attempt, f"ask {ask_id} is not its own")
            if row.exit_code is None:
                row.exit_code = exit_code + _RAN_OUT * ran_out

    def forget(self, gang_id: str, attempt: int) -> None:
        """Remove those of an attempt that is over."""
        with self._database.transaction() as session:
            of_it = col(GangAskRow.gang_id) == gang_id, col(GangAskRow.attempt) <= attempt
            session.exec(delete(GangAskRow).where(*of_it))


def _ask(row: GangAskRow) -> GangAsk:
    code = row.exit_code
    if code is None:
        return record(GangAsk, row, ran_out=False)
    return record(GangAsk, row, exit_code=code % _RAN_OUT, ran_out=code >= _RAN_OUT)


def _part(session: Session, fence: Fence) -> tuple[str, int, int]:
    """Gang, attempt and rank of the run that *fence* is of."""
    run, _ = fenced(session, fence)
    return run.gang_id or run.run_id, run.attempt, run.gang_rank
