"""What of a failed step and a failed flow is on the run's page."""

import logging

import pytest
from prefect.exceptions import FailedRun

import flows.steps  # noqa: F401 - sets the filters

FAILED, BUG = FailedRun("exit 3"), KeyError("a bug")


@pytest.mark.parametrize("name", ["prefect.flow_runs", "prefect.task_runs"])
@pytest.mark.parametrize(
    ("exc_info", "kept"),
    [
        (None, True),
        ((None, None, None), False),  # what logging makes of `exc_info=True` without an exception
        ((FailedRun, FAILED, None), False),
        ((KeyError, BUG, None), True),
    ],
)
def test_only_a_traceback_that_tells_something_is_shown(
    name: str, exc_info: object, kept: bool
) -> None:
    record = logging.LogRecord(name, logging.ERROR, "", 1, "ended", None, None)
    record.exc_info = exc_info  # type: ignore[assignment]
    assert bool(logging.getLogger(name).filter(record)) == kept
