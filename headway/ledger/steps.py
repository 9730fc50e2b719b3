"""Steps: when each of the five steps of an attempt began, and how it ended."""

from sqlalchemy import update
from sqlmodel import col, select

from headway.ledger.columns import db_now, put
from headway.ledger.database import Repository
from headway.ledger.fences import stepping
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
        with self._database.transaction() as session:
            stepping(session, fence)
            put(
                session,
                StepRow,
                {"run_id": fence.run_id, "attempt": fence.attempt, "name": name},
                state=StepState.RUNNING,
                started_at=db_now(),
                ended_at=None,
                message="",
            )

    def ended(self, fence: Fence, name: str, state: StepState, message: str = "") -> None:
        """A step that was started has ended.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            stepping(session, fence)
            own = col(StepRow.run_id) == fence.run_id, col(StepRow.attempt) == fence.attempt
            ended = {"state": state, "message": message, "ended_at": db_now()}
            session.execute(update(StepRow).where(*own, col(StepRow.name) == name).values(ended))

    def of_run(self, run_id: str) -> list[Step]:
        """Every step of every attempt, in order of their start."""
        query = select(StepRow).where(StepRow.run_id == run_id).order_by("started_at")
        return self._records(Step, query)
