"""Tasks of the worker that go on for as long as it lives."""

import math
from asyncio import Event
from collections.abc import Awaitable, Callable

import anyio
import httpx
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_logger

from headway.clock import Clock
from headway.errors import HeadwayError

log = get_logger("worker.gpu-node")

_LEAST_PAUSE_S = 0.1


async def run_periodically(
    task: Callable[[], Awaitable[object]],
    clock: Clock,
    without: str,
    every_s: float,
    wake: Event | None,
) -> None:
    """Run *task* again and again; what it raises is logged and costs one turn.

    A turn that takes long moves the next, which are not made up for. Trouble of
    the site is one line of the log; everything else a traceback, since nobody foresaw it.

    Args:
        task: One turn.
        clock: Measures the turns.
        without: What is missing after a turn that failed, such as ``no heartbeat``.
        every_s: From the begin of one turn to that of the next; infinity where only *wake* counts.
        wake: Begins a turn at once when it is set; the turn begins with clearing it. None for
            turns by the clock alone.
    """
    while True:
        begun_s = clock.monotonic_s()
        if wake is not None:
            wake.clear()
        try:
            await task()
        except (httpx.HTTPError, ObjectNotFound, HeadwayError) as error:
            log.warning("%s: %s", without, error)
        except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
            log.exception("%s", without)
        pause_s = max(begun_s + every_s - clock.monotonic_s(), _LEAST_PAUSE_S)
        with anyio.move_on_after(pause_s):
            await (wake.wait() if wake is not None else anyio.sleep(math.inf))
