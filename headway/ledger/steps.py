"""Steps: when each of the five steps of an attempt began, and how it ended."""

from sqlmodel import select

from headway.ledger.columns import now
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
            session.merge(
                StepRow(
                    run_id=fence.run_id,
                    attempt=fence.attempt,
                    name=name,
                    state=StepState.RUNNING,
                    started_at=now(session),
                    ended_at=None,
                )
            )

    def ended(self, fence: Fence, name: str, state: StepState, message: str = "") -> None:
        """A step that was started has ended.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            stepping(session, fence)
            row = session.get_one(StepRow, (fence.run_id, fence.attempt, name))
            row.state, row.message, row.ended_at = state, message, now(session)

    def of_run(self, run_id: str) -> list[Step]:
        """Every step of every attempt, in order of their start."""
        query = select(StepRow).where(StepRow.run_id == run_id).order_by("started_at")
        return self._records(Step, query)
