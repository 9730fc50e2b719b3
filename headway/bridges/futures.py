"""`headway.Executor`: an executor of `concurrent.futures` whose workers are a site's nodes."""

import uuid
from collections.abc import Callable
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import Any

from headway.bridges.calls import job_of, result_of
from headway.bridges.patience import patiently
from headway.client import Client
from headway.client.run import Run
from headway.errors import HeadwayError, RunFailed

_AT_ONCE = 32


class Call(Future[Any]):
    """The future of one call; its run is a run like any other."""

    run: Run | None = None
    """The run, once it has been submitted."""

    def __init__(self) -> None:
        """A call that has not been submitted."""
        super().__init__()
        self._lock = Lock()
        self._given_up = False

    def cancel(self) -> bool:
        """Never submit it; a run that goes on is ended, and then the result is `RunFailed`.

        Returns:
            Whether it was never submitted, as `concurrent.futures` has it.
        """
        if super().cancel():
            return True
        with self._lock:
            self._given_up, run = True, self.run
        if run is not None and not self.done():
            run.cancel()
        return False

    def submitted(self, run: Run) -> None:
        """Remember its run; ends it if the call was cancelled meanwhile."""
        with self._lock:
            self.run, late = run, self._given_up
        if late:
            patiently(run.cancel)


class Executor(FuturesExecutor):
    """Calls functions on the site's nodes, each as a run.

        with headway.Executor(resources={"gpus": 1}, requirements=["torch"]) as executor:
            for loss in executor.map(train, [0.1, 0.2, 0.4]):
                print(loss)

    A function, its arguments and what it returns travel by cloudpickle. In a `with` block that
    ends by an error, runs that go on are ended. Without such a block, and after
    ``shutdown(wait=False)``, the end of the program waits for calls that go on. What a call's run
    left can be asked for after that, too.
    """

    def __init__(
        self,
        max_workers: int = _AT_ONCE,
        *,
        client: Client | None = None,
        pool: str | None = None,
        queue: str | None = None,
        **fields: Any,
    ) -> None:
        """An executor whose calls are jobs with *fields* of a job file.

        Args:
            max_workers: So many runs are at the site at once; the others are submitted later.
            client: Of the site; that of `headway login` for None.
            pool: Work pool, where the site has several.
            queue: Work queue, or a node to run on.
            fields: `workdir` is sent along with each call, `requirements` is a list of packages.
                Without `image` and `python` it is this Python's version.
        """
        self._client = client or Client()
        self._place = {"pool": pool, "queue": queue}
        self._fields = fields
        self._threads = ThreadPoolExecutor(max_workers, thread_name_prefix="headway-call")
        self._calls: set[Call] = set()
        self._lock = Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Call:
        """Submit ``fn(*args, **kwargs)``; the future of what it returns.

        It raises what the function raised, with the traceback of the run, and `RunFailed` where
        the run ended without a result.
        """
        call = Call()
        with self._lock:
            self._calls.add(call)
        call.add_done_callback(self._forget)
        try:
            self._threads.submit(self._follow, call, fn, args, kwargs)
        except RuntimeError:  # it has been shut down
            self._forget(call)
            raise
        return call

    def _forget(self, call: Future[Any]) -> None:
        with self._lock:
            self._calls.discard(call)

    def _follow(
        self, call: Call, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not call.set_running_or_notify_cancel():
            return
        try:
            key = uuid.uuid4().hex
            with job_of(fn, args, kwargs, self._fields) as job:
                run = patiently(lambda: self._client.submit(job, key=key, **self._place))
            call.submitted(run)
            with suppress(RunFailed):  # the function may have raised: its result says so
                run.wait()
            returned = patiently(lambda: result_of(run))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the future's
            call.set_exception(error)
        else:
            call.set_result(returned)

    def shutdown(  # the standard library's
        self,
        wait: bool = True,  # noqa: FBT001, FBT002
        *,
        cancel_futures: bool = False,
    ) -> None:
        """Take no further calls.

        Args:
            wait: Until all that were submitted have ended.
            cancel_futures: Calls that wait here are never submitted, runs that go on are ended.
        """
        if cancel_futures:
            with self._lock:
                calls = list(self._calls)
            for call in calls:
                try:
                    call.cancel()
                except HeadwayError:  # it may have ended, or the site be away: the rest goes on
                    continue
        self._threads.shutdown(wait=wait)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Wait for all calls; after an error end those that go on."""
        self.shutdown(cancel_futures=exc_type is not None)
