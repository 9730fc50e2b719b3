"""Stopping runs for others of a higher priority."""

from collections.abc import Callable

import anyio
import anyio.abc
from prefect.logging import get_logger

from headway.errors import HeadwayError

log = get_logger("worker.gpu-node")


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
