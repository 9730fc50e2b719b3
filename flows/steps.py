"""The steps of a run: Prefect tasks whose failure shows one line."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Failed

from headway.errors import HeadwayError

P = ParamSpec("P")
R = TypeVar("R")

# Prefect says twice that a step has returned a failed state: with the state's name and
# message, and before as an error with the traceback of no exception.
logging.getLogger("prefect.task_runs").addFilter(
    lambda record: record.exc_info != (None, None, None)
)


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
