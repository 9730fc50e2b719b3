"""The steps of a run: Prefect tasks whose failure shows one line."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import FailedRun
from prefect.states import Failed

from headway.errors import HeadwayError

P = ParamSpec("P")
R = TypeVar("R")


def _says_something(record: logging.LogRecord) -> bool:
    """Whether a line of Prefect's belongs on the run's page.

    That a step or the flow has returned a failed state it says with the state's own message. It
    says so once more, with a traceback: of no exception for a step, of its own code for the flow.
    """
    kind = record.exc_info[0] if record.exc_info else Exception
    return kind is not None and not issubclass(kind, FailedRun)


for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_says_something)


class KeptResult(Exception):
    """Raised by a step that is to be shown as failed; the flow goes on with its *result*.

    It is an exception because the data of Prefect's failed states have to be one.
    """

    def __init__(self, result: Any, message: str) -> None:
        self.result = result
        super().__init__(message)


def step(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a Prefect task whose failure shows the error's one line, nothing else."""

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        @task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)
        @wraps(body)
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                return body(*args, **kwargs)
            except (HeadwayError, KeptResult) as error:
                return Failed(message=str(error), data=error)

        @wraps(body)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            state = cast("Any", run)(*args, **kwargs, return_state=True)
            try:
                return cast("R", state.result())
            except KeptResult as kept:
                return cast("R", kept.result)

        return call

    return decorate
