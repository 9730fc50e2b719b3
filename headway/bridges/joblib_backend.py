"""joblib's backend ``headway``: what scikit-learn does with `n_jobs`, done on a site.

import headway.bridges.joblib_backend as backend

    backend.register()
    with joblib.parallel_config("headway", n_jobs=8, requirements=["scikit-learn"]):
        GridSearchCV(estimator, grid).fit(X, y)
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, SequentialBackend

from headway.bridges.futures import Executor
from headway.errors import InvalidInput

NAME, NAME_OF_RUNS = "headway", "joblib"


class HeadwayBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Each batch of tasks is a run; arguments of `parallel_config` are those of `Executor`."""

    supports_retrieve_callback = True
    default_n_jobs = 8
    # A run takes seconds to begin: tasks are put together until one takes so long.
    MIN_IDEAL_BATCH_DURATION = 20.0
    MAX_IDEAL_BATCH_DURATION = 300.0

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """So many runs are at the site at once; `default_n_jobs` for None and -1."""
        if n_jobs == 0:
            raise InvalidInput("n_jobs", "0", "give how many runs are to be at the site at once")
        return self.default_n_jobs if n_jobs is None or n_jobs < 0 else n_jobs

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,  # noqa: ARG002 - joblib's: a hint
        require: str | None = None,
        **fields: Any,
    ) -> int:
        """Begin with an executor for the runs of one `Parallel`."""
        if require == "sharedmem":
            raise InvalidInput("require", require, "runs share no memory: take threads for that")
        self.parallel = parallel
        self._at_once = self.effective_n_jobs(n_jobs)
        given = {name: value for name, value in fields.items() if name not in _OF_POOLS}
        self._fields = {"name": NAME_OF_RUNS} | self.backend_kwargs | given
        self._executor = Executor(self._at_once, **self._fields)
        return self._at_once

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None
    ) -> Future[Any]:
        """Submit one batch."""
        call = self._executor.submit(func)
        if callback is not None:
            call.add_done_callback(callback)
        return call

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """What the batch returned; raises what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002
        """End the runs that go on, since one task has failed."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        if ensure_ready:
            self._executor = Executor(self._at_once, **self._fields)

    def terminate(self) -> None:
        """Wait for the runs, and take no more."""
        self._executor.shutdown()

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Within a run tasks are done one after the other."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


_OF_POOLS = frozenset({"temp_folder", "max_nbytes", "mmap_mode", "verbose", "context"})
"""What joblib tells every backend, for pools of processes on one machine."""


def register() -> None:
    """Make ``headway`` a backend of joblib's in this process."""
    register_parallel_backend(NAME, HeadwayBackend)
