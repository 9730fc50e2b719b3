"""`train`: one run, from its data set to its clean-up.

Five tasks in order, each a few lines that call headway. Whatever process is
killed, the next one finds the run where it is; so nothing here may be the only
one to know something.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import httpx
from prefect import flow
from prefect.blocks.system import Secret
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import Abort, TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Failed, Scheduled

from flows.display import Display, show_comparison, show_profile, show_report, show_session
from flows.leaving import deaf_to_sigterm, is_over, sigterm_waits_for_the_ledger, state_of
from flows.steps import KeptResult, step
from flows.wishes import keep_wish
from headway.errors import (
    GrantNotKept,
    HeadwayError,
    InvalidInput,
    LeaseLost,
    LedgerUnreachable,
    SiteUnreachable,
)
from headway.ledger.database import Connections
from headway.model.job import TrainingJob
from headway.model.lease import Lease, Resource, Wait
from headway.model.run import Exit, ExitKind, RunState
from headway.model.session import serves_port, session_link
from headway.node.flowlock import hold_flow
from headway.policy.gang_end import Rank
from headway.run.attempt import Attempt
from headway.run.code import stage_code
from headway.run.followed import Followed
from headway.run.rendezvous import Meeting
from headway.run.settle import exit_of, summary_of
from headway.runtime.errors import EngineUnreachable
from headway.site import Site, current_site
from headway.units import format_size
from headway.views.run_history import history_of
from headway.views.run_markdown import markdown, page_link

DIGITS = TrainingJob(
    name="digits",
    image="headway-samples:local",
    command=["python", "-m", "samples.digits.train"],
)
"""What `train` runs when it is given nothing: a few seconds of real training."""


@step("stage_data")
def stage_data(attempt: Attempt) -> None:
    """Bring the job's data set to this node."""
    logger = get_run_logger()
    with attempt.step("stage_data"):
        said = [0]

        def progress(done_bytes: int, total_bytes: int | None) -> None:
            said[0] = min(said[0], done_bytes)  # the next data set begins
            if done_bytes - said[0] > (total_bytes or 2**34) / 10:
                said[0] = done_bytes
                of = f" of {format_size(total_bytes)}" if total_bytes else ""
                logger.info("staging: %s%s", format_size(done_bytes), of)

        code = stage_code(attempt)
        staged = attempt.stage_data(progress, partial(_secret, attempt, "data_stores"))
    if code is not None:
        size, fetched = (format_size(n) for n in (code.manifest.size_bytes, code.fetched_bytes))
        files = len(code.manifest.files)
        logger.info("code: %d files, %s, of which %s were brought here", files, size, fetched)
    for name, each in staged.items():
        how = "was in the cache" if each.from_cache else "copied"
        size = format_size(each.size_bytes)
        logger.info("data set %s: %s, %s", name or each.path.name, size, how)


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
    gpus += f", {answer.ports_text}" if answer.ports else ""
    memory = format_size(answer.host_memory_bytes)
    logger.info("admitted on %s: %s, %g CPUs%s", answer.node, memory, answer.cpus, gpus)
    return answer


@step("train")
def train_container(
    attempt: Attempt, lease: Lease, secrets: Callable[[], Mapping[str, str]]
) -> Followed:
    """Run the container under its limits and follow it to its end."""
    below = page_link(attempt.run_id)
    display = Display(get_run_logger(), attempt.site.clock, below=below)
    if serves_port(attempt.job.document()):
        get_run_logger().info("session: %s at the gateway", session_link(attempt.run_id))
        show_session(attempt.run_id)
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


@flow(name="train", validate_parameters=False, persist_result=False, retries=0)
def train(job: TrainingJob = DIGITS) -> State[Any]:  # noqa: ARG001 - the ledger has it
    """Train one job in a container as soon as this node has headroom for it.

    Give the job's image and command, and what it needs; headway predicts what
    is left open. The run waits as AwaitingHeadroom until a node has room.
    """
    site = current_site(Connections.BRIEF)
    run_id = str(flow_run.get_id())
    with hold_flow(site.settings.state_dir, run_id):
        keep_wish(run_id)
        state = run_attempt(site, run_id)
        if state.type is StateType.SCHEDULED:
            raise Abort(f"back to the queue: {state.message}")  # of which the scheduler tells
        deaf_to_sigterm()  # until Prefect, which is told now, takes its handler away
        return state


def run_attempt(site: Site, run_id: str, meeting: Meeting | None = None) -> State[Any]:
    """One attempt; its final state, or a SCHEDULED one when there is to be another.

    What the state says is what the ledger says by then: somebody else may have ended the run.

    Args:
        site: This node's.
        run_id: The flow run.
        meeting: Where a rank of a gang meets the others; None for the run that leads.

    Raises:
        Abort: The run is suspended, or another attempt has it: its state is not to be written.
    """
    attempt: Attempt | None = None
    leave = False
    with sigterm_waits_for_the_ledger(), ExitStack() as deaf:
        try:
            attempt = Attempt(site, run_id, meeting)
            words = _steps(attempt)
        except (LedgerUnreachable, EngineUnreachable) as error:
            leave = True  # nothing can be recorded or removed now; the next process goes on here
            return Scheduled(name="AwaitingRetry", message=str(error))
        except LeaseLost as error:
            words = str(error)
        except HeadwayError as error:
            return Failed(message=str(error))
        except TerminationSignal:
            deaf.enter_context(deaf_to_sigterm())
            if attempt is None or not is_over(attempt):
                leave = True
                raise
            words = "its process was told to leave"
        finally:
            # Another signal would break off what this one begins.
            deaf.enter_context(deaf_to_sigterm())
            _tidy(None if leave else attempt)
        # Only now: a run that was retried while this process drew its report is its own no longer.
        return state_of(site, run_id, words)


def _steps(attempt: Attempt) -> str:
    """The steps of the attempt; what is to be said of its end."""
    try:
        stage_data(attempt)
        lease = admit(attempt)
        if isinstance(lease, Wait):
            return _not_now(attempt, lease)
        secrets = partial(_secrets, attempt)
        followed = attempt.make_environment(lease, Display(get_run_logger(), attempt.site.clock))
        if followed is None:
            stopped = attempt.start_together(lease, secrets, _say_late)
            if stopped is not None:
                return attempt.fail(stopped).message
            followed = train_container(attempt, lease, secrets)
        exit_ = update_estimates(attempt, followed)
    except (LedgerUnreachable, EngineUnreachable, LeaseLost):
        raise
    except InvalidInput as error:
        exit_ = Exit(ExitKind.REFUSED, None, str(error))
        attempt.end(exit_)
    except GrantNotKept as error:
        if attempt.give_back(Wait(Resource.GPU_MEMORY, str(error))):
            return str(error)
        exit_ = attempt.fail(exit_of(error))
    except HeadwayError as error:
        exit_ = attempt.fail(exit_of(error))
    if exit_.kind is ExitKind.OK and attempt.ended:
        return summary_of(attempt)
    return exit_.message


def _say_late(ranks: Sequence[Rank]) -> None:
    late = ", ".join(rank.who for rank in ranks)
    get_run_logger().info("ready; to start together it waits for %s", late)


def _tidy(attempt: Attempt | None) -> None:
    """Clean up, and only then tell."""
    if attempt is None:
        return
    try:
        try:
            clean_up(attempt)
        except LeaseLost:  # its steps are another attempt's to tell; what is here goes
            attempt.clean_up()
    except HeadwayError as error:
        # How the run ended is in the ledger, and the janitor removes what is left.
        get_run_logger().warning("not all was cleaned up: %s", error)
    _tell(attempt)


def _tell(attempt: Attempt) -> None:
    """Put an ended run's report on its page; `headway show` tells it too when Prefect is away."""
    try:
        record = attempt.record
        if record.state is RunState.ENDED:
            show_report(markdown(history_of(attempt.site, record)))
    except Exception as error:  # noqa: BLE001 - the run has ended; its report must not change how
        get_run_logger().debug("the report of the run could not be shown: %s", error)


def _not_now(attempt: Attempt, wait: Wait) -> str:
    """Back to the queue; a rank, which cannot wait alone, ends and its gang with it."""
    if attempt.is_rank:
        exit_ = Exit(ExitKind.INFRASTRUCTURE, None, f"no room after all: {wait.reason}")
        return attempt.fail(exit_).message
    attempt.give_back(wait)
    return wait.reason


def _secrets(attempt: Attempt) -> dict[str, str]:
    """Values of the Secret blocks that the job names; they go nowhere but the container.

    They are no parameter of a task: Prefect looks at those.
    """
    found = {}
    for variable, block in attempt.job.secrets.items():
        value = _secret(attempt, f"secrets.{variable}", block)
        found[variable] = value if isinstance(value, str) else json.dumps(value)
    return found


def _secret(attempt: Attempt, field: str, block: str) -> object:
    """Value of the Secret *block* that *field* names."""
    try:
        return cast("object", cast("Any", Secret.load(block)).get())
    except ValueError as error:
        raise InvalidInput(
            field, block, "give the name of a Prefect Secret block that exists"
        ) from error
    except httpx.HTTPError as error:
        raise SiteUnreachable(attempt.site.settings.api_url, str(error)) from error
