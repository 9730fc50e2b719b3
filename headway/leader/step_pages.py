"""The steps of runs that no flow process carries out, as Prefect's page of a run shows steps."""

from uuid import UUID

import anyio
import httpx
from prefect import Task
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed, Failed, Running

from headway.ledger import Ledger
from headway.model.run import STEPS, Step, StepState


def _nothing() -> None:
    """Prefect knows a task by its function."""


_TASKS = {name: Task(_nothing, name=name) for name in STEPS}
_STATES = {StepState.RUNNING: Running, StepState.DONE: Completed, StepState.FAILED: Failed}
_KNOWN = 10_000


class StepPages:
    """Writes task runs, one for each step of each attempt, as the ledger has them."""

    def __init__(self, client: PrefectClient, ledger: Ledger) -> None:
        """Nothing is known of what Prefect has: to make a task run again changes none."""
        self._client, self._ledger = client, ledger
        self._shown: dict[tuple[str, int, str], tuple[UUID, StepState]] = {}

    async def show(self, stepped: set[str]) -> None:
        """Show the steps of these runs; those that were shown are taken out of the set."""
        for run_id in sorted(stepped):
            steps = await anyio.to_thread.run_sync(self._ledger.steps.of_run, run_id)
            stepped.discard(run_id)  # before it is written: what comes meanwhile counts anew
            try:
                for step in steps:
                    await self._show(run_id, step)
            except httpx.HTTPError:
                stepped.add(run_id)
                raise
            except ObjectNotFound:
                continue  # somebody has deleted the run
        self._shown = dict(list(self._shown.items())[-_KNOWN:])

    async def _show(self, run_id: str, step: Step) -> None:
        key = run_id, step.attempt, step.name
        task_run, shown = self._shown.get(key, (None, None))
        if shown is step.state:
            return
        state: State[None] = _STATES[step.state](message=step.message or None)
        if task_run is None:
            made = await self._client.create_task_run(
                _TASKS[step.name],
                UUID(run_id),
                f"{step.name}-{step.attempt}",  # all are one function to Prefect
                name=step.name,
                state=Running(),
            )
            task_run = made.id
        if step.state is not StepState.RUNNING:
            await self._client.set_task_run_state(task_run, state, force=True)
        self._shown[key] = task_run, step.state
