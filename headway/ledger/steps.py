"""Steps: when each of the five steps of an attempt began, and how it ended.

Each begin and each end is one statement, its fence included: a run has ten of them.
"""

from sqlalchemy import literal, update
from sqlmodel import col, select

from headway.ledger.columns import db_now, put
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
        key = {"run_id": fence.run_id, "attempt": fence.attempt, "name": name}
        begun = {"state": StepState.RUNNING, "started_at": db_now(), "ended_at": None}
        with self._database.one_statement() as session:
            if not put(session, StepRow, key, may_step(fence), **begun, message=""):
                raise step_lost(fence)

    def ended(self, fence: Fence, name: str, state: StepState, message: str = "") -> None:
        """A step that was started has ended.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        own = col(StepRow.run_id) == fence.run_id, col(StepRow.attempt) == fence.attempt
        step = update(StepRow).where(*own, col(StepRow.name) == name, may_step(fence))
        ended = step.values(state=state, message=message, ended_at=db_now())
        with self._database.one_statement() as session:
            if session.connection().execute(ended.returning(literal(1))).first() is None:
                raise step_lost(fence)

    def of_run(self, run_id: str) -> list[Step]:
        """Every step of every attempt, in order of their start."""
        query = select(StepRow).where(StepRow.run_id == run_id).order_by("started_at")
        return self._records(Step, query)
