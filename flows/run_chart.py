"""The chart of a run on its page: drawn beside the run, about twice a minute, and at its end."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from logging import Logger

from prefect.artifacts import create_markdown_artifact
from prefect.logging.loggers import LoggingAdapter

from flows.page import Artifact, picture_text
from headway.model.progress import ProgressPoint
from headway.run.follow import Watched

_EVERY_S = 30.0
_WAIT_AT_END_S = 20.0
_MAX_SAMPLES = 2000
_A_LINE = 2
"""So many points make one."""
_TEXT = "What the log says, how long iterations take, and host memory against its limit."


class RunChart:
    """Keeps memory samples, and draws them with the run's points while it goes on.

    Drawing happens in a thread of its own, since the first chart loads
    matplotlib; the log is followed meanwhile. Nothing here ever ends the run.

    Args:
        logger: Told why a chart could not be shown.
        points: Gives what the log has said so far.
        limit_bytes: The run's limit of host memory.
    """

    def __init__(
        self,
        logger: LoggingAdapter | Logger,
        points: Callable[[], Sequence[ProgressPoint]],
        limit_bytes: int,
    ) -> None:
        self._logger = logger
        self._points = points
        self._limit_bytes = limit_bytes
        self._memory: list[tuple[float, int]] = []
        self._next_s = 0.0
        self._drawing: Future[bytes] | None = None
        self._thread = ThreadPoolExecutor(1, "run-chart")
        self._page = Artifact(create_markdown_artifact, key="picture", description=_TEXT)

    def watched(self, now: Watched) -> None:
        """Take a sample; show a chart that is ready, and begin the next when it is time."""
        self._sample(now)
        if self._next_s == 0.0:
            self._next_s = now.elapsed_s + _EVERY_S
        try:
            if self._drawing is not None and self._drawing.done():
                ready, self._drawing = self._drawing, None
                self._show(ready.result())
            if self._drawing is None and now.elapsed_s >= self._next_s:
                self._next_s = now.elapsed_s + _EVERY_S
                self._drawing = self._begin(self._points())
        except Exception as error:  # noqa: BLE001 - the chart must never end the run
            self._logger.debug("the chart of the run could not be shown: %s", error)

    def close(self) -> None:
        """The container has ended: leave a chart of all of it, where there is a line to draw.

        To draw costs a short run as much as all its steps.
        """
        try:
            points = self._points()
            if len(points) >= _A_LINE or len(self._memory) >= _A_LINE:
                self._show(self._begin(points).result(_WAIT_AT_END_S))
        except Exception as error:  # noqa: BLE001 - the chart must never end the run
            self._logger.debug("the chart of the run could not be shown: %s", error)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _sample(self, now: Watched) -> None:
        used_bytes = now.usage.host_used_bytes
        if used_bytes is None or (self._memory and now.elapsed_s < self._memory[-1][0] + 1.0):
            return
        self._memory.append((now.elapsed_s, used_bytes))
        if len(self._memory) > _MAX_SAMPLES:
            del self._memory[1::2]

    def _begin(self, points: Sequence[ProgressPoint]) -> Future[bytes]:
        return self._thread.submit(_draw, points, list(self._memory), self._limit_bytes)

    def _show(self, png: bytes) -> None:
        self._page.show(picture_text(png, _TEXT))


def _draw(
    points: Sequence[ProgressPoint], memory: Sequence[tuple[float, int]], limit_bytes: int
) -> bytes:
    from headway.views.charts import draw_run  # matplotlib takes a second to load

    return draw_run(points, memory, limit_bytes)
