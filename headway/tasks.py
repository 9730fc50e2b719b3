"""`train`: a Prefect task that waits for a run of headway, for flows of one's own.

    from headway.tasks import train

The run is one like any other: it is submitted at the gateway, for whom the token of the flow's
process says. docs/python.md shows a flow of such tasks.
"""

import hashlib
from collections.abc import Mapping
from threading import Lock
from typing import Any
from uuid import UUID

import httpx
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import TERMINAL_STATES, StateType, TaskRun
from prefect.context import TaskRunContext
from prefect.exceptions import ObjectNotFound, TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import task_run

from headway.client import Client
from headway.client.run import LOOK_EVERY_S, Run
from headway.clock import Clock, SystemClock
from headway.errors import EndUntold, InvalidInput
from headway.model.job import TrainingJob
from headway.model.strict_json import write_strict

_LOOKS_A_QUESTION = 5
"""Prefect is asked whether the flow is cancelled at every so many looks at the run."""
_ENDED = frozenset(TERMINAL_STATES)
_GOING = frozenset({StateType.CANCELLING, StateType.CANCELLED})
_submitted: dict[UUID, dict[tuple[int, str], list[UUID]]] = {}
"""Of each flow run the task runs that asked for the same job in the same start of it, in order."""
_MOST_FLOW_RUNS = 64
"""When it knows of more, a process asks whether the oldest one has ended, and forgets it then."""
_lock = Lock()


def _named() -> str:
    job = task_run.parameters["job"]
    return str(job.name if isinstance(job, TrainingJob) else job.get("name", "train"))


@task(name="train", task_run_name=_named, cache_policy=NO_CACHE)
def train(
    job: TrainingJob | Mapping[str, Any], *, pool: str | None = None, queue: str | None = None
) -> dict[str, Any]:
    """Submit *job* and wait until it has ended well; the document of `headway show` of its run.

    A retry of this task, or of its flow, finds the run again: where it goes on it is waited for,
    where it did not end well it is tried once more from its checkpoint. A flow that is cancelled
    cancels the run.

    Args:
        job: With the fields of a job file. Its owner and team are those of the token with which
            the flow's process comes in at the gateway.
        pool: Work pool, where the site has several.
        queue: Work queue, or a node to run on.

    Raises:
        RunFailed: It has ended otherwise.
    """
    given = job.document() if isinstance(job, TrainingJob) else dict(job)
    _refuse_owner(given)
    mine = _this_task_run()
    again = mine.run_count > 1 or mine.flow_run_run_count > 1
    with Client() as client:
        run = client.submit(given, key=_key(mine, [given, pool, queue]), pool=pool, queue=queue)
        _link(run, mine, f"{client.url}/headway#/runs/{run.run_id}")
        clock = SystemClock()
        try:
            if again and run.over() and run["state"] != "Completed":
                _retry(run, clock)
            _follow(run, mine, clock)
        except TerminationSignal:  # in the main thread only: others ask Prefect
            if _flow_is_cancelled(mine):
                run.cancel()
            raise
        return dict(run.wait())


def _refuse_owner(job: Mapping[str, Any]) -> None:
    """An operator's token could submit a job as anybody's; a flow's parameters must not."""
    for field in ("owner", "team"):
        if job.get(field, default := TrainingJob.model_fields[field].default) != default:
            allowed = "it comes from the token that the flow's process has: leave it out"
            raise InvalidInput(field, job[field], allowed)


def _this_task_run() -> TaskRun:
    found = TaskRunContext.get()
    assert found is not None  # noqa: S101 - Prefect sets it before it calls a task
    return found.task_run


def _key(mine: TaskRun, asked: object) -> str:
    """By which the gateway knows a job again: the same in every start of a flow run.

    Prefect gives a task run another id in each of them. So jobs of a flow run are known by what
    they are, and equal ones by their number among each other.
    """
    what, flow_run_id = hashlib.sha256(write_strict(asked)).hexdigest()[:16], mine.flow_run_id
    if flow_run_id is None:
        return f"flow:{mine.id}:{what}:0"
    _forget_ended(flow_run_id)
    with _lock:
        known = _submitted.setdefault(flow_run_id, {})
        equals = known.setdefault((mine.flow_run_run_count, what), [])
        if mine.id not in equals:
            equals.append(mine.id)
        return f"flow:{flow_run_id}:{what}:{equals.index(mine.id)}"


def _forget_ended(but: UUID) -> None:
    """Forget the oldest flow runs of many if they have ended; one that goes on is the newest then.

    Two are asked about for each that may come, so that those that go on do not add up.
    """
    for _ in range(2):
        with _lock:
            oldest = next(iter(_submitted), but)
            if oldest == but or len(_submitted) < _MOST_FLOW_RUNS:
                return
            _submitted[oldest] = _submitted.pop(oldest)
        if _flow_has(_ENDED, oldest):
            with _lock:
                _submitted.pop(oldest, None)


def _retry(run: Run, clock: Clock) -> None:
    """Try it once more; its end may be so new that Prefect has not been told of it."""
    while True:
        try:
            return run.retry()
        except EndUntold:
            clock.sleep(LOOK_EVERY_S)


def _follow(run: Run, mine: TaskRun, clock: Clock) -> None:
    """Return when *run* has ended; end it when the flow is cancelled."""
    looks = 0
    while not run.over():
        looks += 1
        if looks % _LOOKS_A_QUESTION == 0 and _flow_is_cancelled(mine):
            run.cancel()
            return
        clock.sleep(LOOK_EVERY_S)


def _flow_is_cancelled(mine: TaskRun) -> bool:
    """Whether Prefect says so. Where it does not answer, the run goes on."""
    return mine.flow_run_id is not None and _flow_has(_GOING, mine.flow_run_id)


def _flow_has(states: frozenset[StateType], flow_run_id: UUID) -> bool:
    """Whether Prefect says that it is in one of *states*; not where it does not answer."""
    try:
        with get_client(sync_client=True) as prefect:
            state = prefect.read_flow_run(flow_run_id).state
    except (httpx.HTTPError, ObjectNotFound):
        return False
    return state is not None and state.type in states


def _link(run: Run, mine: TaskRun, page: str) -> None:
    """Have the pages of the task run and of the run lead to each other."""
    logger = get_run_logger()
    logger.info("run %s (%s): %s", run["name"], run.run_id, page)
    try:
        with get_client(sync_client=True) as prefect:
            links = [f"[page of the run]({page})", *_links_in_prefect(prefect, run, mine)]
            prefect.create_artifact(
                ArtifactCreate(
                    key="headway-run",
                    type="markdown",
                    data=f"Run **{run['name']}** of headway: {', '.join(links)}",
                    flow_run_id=mine.flow_run_id,
                    task_run_id=mine.id,
                )
            )
    except httpx.HTTPError as error:  # the run is what counts, not the way to it
        logger.debug("no links to the run: %s", error)


def _links_in_prefect(prefect: SyncPrefectClient, run: Run, mine: TaskRun) -> list[str]:
    """Where to find it in the same Prefect, if it is the site's; and from there, the way back."""
    try:
        prefect.read_flow_run(UUID(run.run_id))
    except ObjectNotFound:
        return []
    if mine.flow_run_id is not None:
        back = f"[flow run that waits for it](/runs/flow-run/{mine.flow_run_id})"
        prefect.create_artifact(
            ArtifactCreate(
                key="handed-in-by",
                type="markdown",
                data=f"Submitted by a {back}, task [{mine.name}](/runs/task-run/{mine.id})",
                flow_run_id=UUID(run.run_id),
            )
        )
    return [f"[in Prefect](/runs/flow-run/{run.run_id})"]
