"""Steps: when each of the five steps of an attempt began, and how it ended.

Each begin and each end is one statement, its fence included: a run has ten of them.
"""

from typing import Any

from sqlalchemy import literal, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, select

from headway.ledger.columns import EnumWord, db_now
from headway.ledger.database import Repository
from headway.ledger.fences import may_step, step_lost
from headway.ledger.tables import StepRow
from headway.model.lease import Fence
from headway.model.run import Step, StepState


class Steps(Repository):
    """The step table."""

    def started(self, fence: Fence, name: str) -> None:
        """A step begins, or begins again in the next process.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        own = {"run_id": literal(fence.run_id), "attempt": literal(fence.attempt)}
        row = own | {
            "name": literal(name),
            "state": literal(StepState.RUNNING, EnumWord(StepState)),
            "started_at": db_now(),
            "message": literal(""),
        }
        new: Any = select(*row.values()).where(may_step(fence))  # type: ignore[call-overload]
        again = {"state": StepState.RUNNING, "started_at": db_now(), "ended_at": None}
        begun = insert(StepRow).from_select([*row], new)
        key = ("run_id", "attempt", "name")
        self._write(
            fence, begun.on_conflict_do_update(index_elements=key, set_=again | {"message": ""})
        )

    def ended(self, fence: Fence, name: str, state: StepState, message: str = "") -> None:
        """A step that was started has ended.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        own = col(StepRow.run_id) == fence.run_id, col(StepRow.attempt) == fence.attempt
        which = update(StepRow).where(*own, col(StepRow.name) == name, may_step(fence))
        self._write(fence, which.values(state=state, message=message, ended_at=db_now()))

    def _write(self, fence: Fence, statement: Any) -> None:
        with self._database.one_statement() as session:
            done = session.connection().execute(statement.returning(literal(1)))
            if done.first() is None:
                raise step_lost(fence)

    def of_run(self, run_id: str) -> list[Step]:
        """Every step of every attempt, in order of their start."""
        query = select(StepRow).where(StepRow.run_id == run_id).order_by("started_at")
        return self._records(Step, query)
