"""A flow process of the `train` flow without a Prefect server, for tests that kill or hold it."""

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from multiprocessing.context import ForkServerProcess
from typing import Any

from prefect.exceptions import Abort, TerminationSignal

from flows import train
from flows.steps import KeptResult
from headway.clock import SystemClock
from headway.node.flowlock import hold_flow
from headway.settings import Settings
from headway.site import Site
from tests.support.netns import inside

STEPS = ("stage_data", "admit", "train_container", "update_estimates", "clean_up")


def begin_flow(
    settings: Settings, run_id: str, engine: str = "", namespace: str = ""
) -> ForkServerProcess:
    """Start the flow of a run.

    Args:
        settings: Its node's.
        run_id: The run.
        engine: Where it reaches the container engine; the usual one if empty.
        namespace: Network namespace that it is in; that of the test if empty.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # what it imports takes seconds
    process = context.Process(target=_flow, args=(settings, run_id, engine, namespace), daemon=True)
    process.start()
    return process


def _flow(settings: Settings, run_id: str, engine: str, namespace: str) -> None:
    with inside(namespace) if namespace else nullcontext():
        follow(settings, run_id, engine)


def follow(settings: Settings, run_id: str, engine: str = "") -> None:
    """Be the flow of a run, in this process."""
    if engine:
        os.environ["DOCKER_HOST"] = engine
    signal.signal(signal.SIGTERM, _terminate)  # as Prefect does within a flow run
    for name, value in steps_without_prefect().items():
        setattr(train, name, value)
    site = Site(settings, SystemClock())
    try:
        with hold_flow(settings.state_dir, run_id):
            train.run_attempt(site, run_id)
    except (Abort, TerminationSignal) as error:
        logging.getLogger("flow").info("it leaves: %s", error)


def _terminate(*_: object) -> None:
    raise TerminationSignal(signal=signal.SIGTERM)


def steps_without_prefect() -> dict[str, Any]:
    """What to replace in `flows.train`: its steps are plain functions then, and tell nobody."""
    return {
        "get_run_logger": lambda: logging.getLogger("flow"),
        "_tell": lambda _: None,
        "show_comparison": lambda *_: None,
        "Display": lambda *_, **__: _Display(),
        **{name: partial(_plain, getattr(train, name).__wrapped__) for name in STEPS},
    }


def _plain(step: Callable[..., Any], *arguments: Any) -> Any:
    """A step as a function; one that is to be shown as failed gives its result all the same."""
    try:
        return step(*arguments)
    except KeptResult as kept:
        return kept.result


class _Display:
    """Nobody looks."""

    def lines(self, data: bytes, skipped_bytes: int) -> None: ...

    def watched(self, now: object) -> None: ...

    def close(self) -> None: ...
