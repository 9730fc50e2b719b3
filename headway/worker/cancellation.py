"""Ending what this worker has started: preempted runs, and runs cancelled before they began."""

import signal
from collections.abc import Callable

import anyio
import anyio.abc
import psutil
from prefect.logging import get_logger

from headway.errors import HeadwayError

log = get_logger("worker.gpu-node")

RUN_ID = "PREFECT__FLOW_RUN_ID"
"""Variable of a flow process that says which run it was started for."""


class Preemption:
    """Stops containers of preempted runs, each in a task of its own, none twice at once."""

    def __init__(self, stop: Callable[[str], None], tasks: anyio.abc.TaskGroup) -> None:
        """*stop* gives a container its grace time; *tasks* are those of the worker."""
        self._stop = stop
        self._tasks = tasks
        self._stopping: set[str] = set()

    def begin(self, run_id: str) -> None:
        """Stop the run's container; its flow then gives its place back."""
        if run_id not in self._stopping:
            self._stopping.add(run_id)
            self._tasks.start_soon(self._end, run_id)

    async def _end(self, run_id: str) -> None:
        try:
            await anyio.to_thread.run_sync(self._stop, run_id)
        except HeadwayError as error:
            log.warning("run %s was not stopped: %s", run_id, error)
        finally:
            self._stopping.discard(run_id)


def end_flow_process(pid: str, run_id: str) -> None:
    """Ask process *pid* to end if it was started for *run_id*.

    Prefect's API hands out the pid, and anybody may have written it there.

    Raises:
        psutil.Error: There is no such process, or it is another user's.
        ValueError: *pid* is no number.
    """
    process = psutil.Process(int(pid))
    if process.environ().get(RUN_ID) == run_id:
        process.send_signal(signal.SIGTERM)
