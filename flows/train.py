"""`train`: one run, from its data set to its clean-up.

Five tasks in order, each a few lines that call headway. Whatever process is
killed, the next one finds the run where it is; so nothing here may be the only
one to know something.
"""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, cast

import httpx
from prefect import flow
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import Abort, TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import deployment, flow_run
from prefect.states import Completed, Failed, Scheduled

from flows.display import Display, show_comparison, show_profile, show_report
from flows.run_chart import RunChart
from flows.start_ranks import start_ranks
from flows.steps import KeptResult, step
from headway.errors import (
    EngineUnreachable,
    HeadwayError,
    InvalidInput,
    LeaseLost,
    LedgerUnreachable,
    SiteUnreachable,
)
from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.job_text import job_from_document
from headway.model.lease import Lease, Wait
from headway.model.run import GRANTED, Exit, ExitKind, cancelled_by
from headway.node.flowlock import hold_flow
from headway.run.attempt import Attempt, exit_of
from headway.run.followed import Followed
from headway.run.rendezvous import Meeting
from headway.site import Site, current_site
from headway.units import format_size
from headway.views.run_history import history_of
from headway.views.run_report import markdown
from headway.worker.states import ended

DIGITS = TrainingJob(
    name="digits",
    image="headway-samples:local",
    command=["python", "-m", "samples.digits.train"],
)
"""What `train` runs when it is given nothing: a few seconds of real training."""

_RETRY_S = 5.0


@step("stage_data")
def stage_data(attempt: Attempt) -> None:
    """Bring the job's data set to this node."""
    logger = get_run_logger()
    with attempt.step("stage_data"):
        said = [0]

        def progress(done_bytes: int, total_bytes: int | None) -> None:
            if done_bytes - said[0] > (total_bytes or 2**34) / 10:
                said[0] = done_bytes
                of = f" of {format_size(total_bytes)}" if total_bytes else ""
                logger.info("staging: %s%s", format_size(done_bytes), of)

        staged = attempt.stage_data(progress)
    if staged is not None:
        how = "was in the cache" if staged.from_cache else "copied"
        logger.info("data set %s: %s, %s", staged.path.name, format_size(staged.size_bytes), how)


@step("admit")
def admit(attempt: Attempt) -> Lease | Wait:
    """Confirm the lease with the real size of the data and the node's live readings."""
    with attempt.step("admit"):
        answer = attempt.admit()
    logger = get_run_logger()
    if isinstance(answer, Wait):
        logger.info("not yet: %s", answer.reason)
        return answer
    gpus = f", {len(answer.gpus)} GPU" if answer.gpus else ""
    memory = format_size(answer.host_memory_bytes)
    logger.info("admitted on %s: %s, %g CPUs%s", answer.node, memory, answer.cpus, gpus)
    return answer


@step("train")
def train_container(
    attempt: Attempt,
    lease: Lease,
    secrets: Callable[[], Mapping[str, str]],
    chart: RunChart,
) -> Followed:
    """Run the container under its limits and follow it to its end."""
    display = Display(get_run_logger(), attempt.site.clock, chart)
    with attempt.step("train"):
        followed = attempt.train(lease, secrets, display)
        display.close()
        if followed.stopped_early and followed.status.exit_code == 0:
            get_run_logger().info("it ended before all its iterations were done: stopped early")
        exit_ = followed.cancellation or followed.own_exit()
        if exit_.kind is not ExitKind.OK:
            raise KeptResult(followed, exit_.message)
    return followed


@step("update_estimates")
def update_estimates(attempt: Attempt, followed: Followed) -> Exit:
    """Keep what was measured beside what was predicted, and learn from it."""
    with attempt.step("update_estimates"):
        exit_, measured = attempt.settle(followed)
    show_comparison(attempt.prediction, measured)
    profile = attempt.profile(followed)
    if profile is not None:
        show_profile(profile)
    return exit_


@step("clean_up")
def clean_up(attempt: Attempt) -> None:
    """Remove container, lease, ports and the claim on the staged copy."""
    with attempt.step("clean_up"):
        attempt.clean_up()


@flow(name="train", validate_parameters=False, persist_result=False)
def train(job: TrainingJob = DIGITS) -> State[Any]:
    """Train one job in a container as soon as this node has headroom for it.

    Give the job's image and command, and what it needs; headway predicts what
    is left open. The run waits as AwaitingHeadroom until a node has room.
    """
    site = current_site()
    run_id = str(flow_run.get_id())
    with hold_flow(site.settings.state_dir, run_id):
        while True:
            state = run_attempt(site, run_id, job)
            if state.type is not StateType.SCHEDULED:
                return state
            if deployment.id is not None:
                return back_to_the_line(site, run_id, state)
            site.clock.sleep(_RETRY_S)  # called as a function: nobody else would start it again


def run_attempt(
    site: Site, run_id: str, document: Any, meeting: Meeting | None = None
) -> State[Any]:
    """One attempt; its final state, or a SCHEDULED one when there is to be another.

    Args:
        site: This node's.
        run_id: The flow run.
        document: The job.
        meeting: Where a rank of a gang meets the others; None for the run that leads.

    Raises:
        Abort: The run is another attempt's now, on this node or elsewhere. The container of
            this one is gone, and Prefect's state is left to the other.
    """
    try:
        return _attempted(site, run_id, document, meeting)
    except LeaseLost as error:
        get_run_logger().warning("%s", error)
        exit_ = _record(site, run_id).exit
        if exit_ is None:
            raise Abort(str(error)) from error
        return ended(exit_)


def _attempted(site: Site, run_id: str, document: Any, meeting: Meeting | None) -> State[Any]:
    """The attempt; whatever became of it, it lets go of what it has on this node.

    Raises:
        LeaseLost: The run is another attempt's now, or was ended by the janitor.
    """
    attempt: Attempt | None = None
    chart: RunChart | None = None
    leave = False
    try:
        job = document if isinstance(document, TrainingJob) else job_from_document(document)
        attempt = Attempt(site, run_id, job, meeting)
        stage_data(attempt)
        lease = admit(attempt)
        if isinstance(lease, Wait):
            return _not_now(attempt, lease)
        secrets = partial(_secrets, attempt)
        start_ranks(attempt, lease, secrets)
        chart = RunChart(get_run_logger(), attempt.points, lease.host_memory_bytes)
        followed = train_container(attempt, lease, secrets, chart)
        return _state_of(attempt, update_estimates(attempt, followed))
    except (LedgerUnreachable, EngineUnreachable) as error:
        leave = True  # nothing can be recorded or removed now; the next process goes on here
        return Scheduled(name="AwaitingRetry", message=str(error))
    except InvalidInput as error:
        if attempt is not None:
            attempt.end(Exit(ExitKind.REFUSED, None, str(error)))
        return Failed(message=str(error))
    except LeaseLost:
        raise
    except HeadwayError as error:
        if attempt is None:
            return Failed(message=str(error))
        return _state_of(attempt, attempt.fail(exit_of(error)))
    except TerminationSignal:
        words = _cancelled(run_id)
        leave = attempt is None or words is None
        if attempt is not None and words is not None:
            attempt.end(Exit(ExitKind.CANCELLED, None, words))
        raise
    finally:
        _tidy(None if leave else attempt, chart)


def _tidy(attempt: Attempt | None, chart: RunChart | None) -> None:
    """Clean up; only then draw and tell, since nobody should wait for a picture."""
    if attempt is not None:
        try:
            try:
                clean_up(attempt)
            except LeaseLost:  # its steps are another attempt's to tell; what is here goes
                attempt.clean_up()
        except HeadwayError as error:
            # How the run ended is in the ledger, and the janitor removes what is left.
            get_run_logger().warning("not all was cleaned up: %s", error)
    if chart is not None:
        chart.close()
    if attempt is not None and attempt.ended:
        _tell(attempt)


def _tell(attempt: Attempt) -> None:
    """Put the run's report on its page; `headway show` tells it too, should Prefect be away."""
    try:
        record = attempt.site.ledger.runs.get(attempt.run_id)
        show_report(markdown(history_of(attempt.site, record)))
    except Exception as error:  # noqa: BLE001 - the run has ended; its report must not change how
        get_run_logger().debug("the report of the run could not be shown: %s", error)


def _state_of(attempt: Attempt, exit_: Exit) -> State[Any]:
    if not attempt.ended:
        return Scheduled(name="AwaitingRetry", message=exit_.message)
    if exit_.kind is ExitKind.OK:
        return Completed(message=attempt.summary())
    return ended(exit_)


def _not_now(attempt: Attempt, wait: Wait) -> State[Any]:
    """Back to the queue; a rank, which cannot wait alone, ends and its gang with it."""
    if attempt.is_rank:
        exit_ = Exit(ExitKind.INFRASTRUCTURE, None, f"no room after all: {wait.reason}")
        return _state_of(attempt, attempt.fail(exit_))
    attempt.give_back(wait)
    return Scheduled(name="AwaitingHeadroom", message=wait.reason)


def back_to_the_line(site: Site, run_id: str, state: State[Any]) -> State[Any]:
    """Make the run claimable again and leave; the worker starts it when it fits.

    Only if the ledger says so at this moment; without an answer the janitor does it later.

    Returns:
        How the run ended, if somebody has ended it meanwhile.

    Raises:
        Abort: In any other case: this process is not needed any more.
    """
    record = _record(site, run_id)
    if record.exit is not None:
        return ended(record.exit)
    if record.state in GRANTED and record.node != site.settings.node:
        raise Abort(f"attempt {record.attempt} is on node {record.node}")
    soon = site.clock.now() + timedelta(seconds=_RETRY_S)
    again: State[Any] = Scheduled(scheduled_time=soon, name=state.name, message=state.message)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(cast("Any", run_id), again, force=True)
    raise Abort(f"back to the queue: {state.message}")


def _record(site: Site, run_id: str) -> RunRecord:
    """The run as the ledger has it at this moment.

    Raises:
        Abort: The ledger does not tell: nothing may be said to Prefect.
    """
    try:
        return site.ledger.runs.get(run_id)
    except HeadwayError as error:
        raise Abort(f"left to the janitor: {error}") from error


def _cancelled(run_id: str) -> str | None:
    """Who asked for the end, as far as is known; any other signal must not stop the container."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(cast("Any", run_id)).state
    except Exception:  # noqa: BLE001 - without an answer the container goes on
        return None
    if state is None or state.type not in {StateType.CANCELLING, StateType.CANCELLED}:
        return None
    return cancelled_by(state.message or "")


def _secrets(attempt: Attempt) -> dict[str, str]:
    """Values of the Secret blocks that the job names; they go nowhere but the container.

    They are no parameter of a task: Prefect looks at those.
    """
    found = {}
    for variable, block in attempt.job.secrets.items():
        try:
            value = cast("Any", Secret.load(block)).get()
            found[variable] = value if isinstance(value, str) else json.dumps(value)
        except ValueError as error:
            raise InvalidInput(
                f"secrets.{variable}", block, "give the name of a Prefect Secret block that exists"
            ) from error
        except httpx.HTTPError as error:
            raise SiteUnreachable(attempt.site.settings.api_url, str(error)) from error
    return found
