"""Tasks that go on: what one raises costs one turn, and no other task waits for it."""

import asyncio
import logging
import math
import threading
from asyncio import Event
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headway.clock import SystemClock
from headway.errors import HeadwayError
from headway.model.node import HostReading, NodeReading
from headway.units import GIB
from headway.worker import gpu_node
from headway.worker.gpu_node import GpuNodeWorker
from headway.worker.tasks import run_periodically


def for_turns(*tasks: Callable[[], Awaitable[None]], until: Event) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(task)
            with anyio.fail_after(20):
                await until.wait()
            group.cancel_scope.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("error", [HeadwayError("away"), KeyError("never foreseen")])
def test_what_a_turn_raises_is_logged_and_costs_one_turn(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    turns, done = [], Event()

    async def body() -> None:
        turns.append(1)
        if len(turns) == 3:
            done.set()
        raise error

    logging.getLogger("prefect").propagate = True
    with caplog.at_level(logging.WARNING):
        for_turns(
            lambda: run_periodically(body, SystemClock(), "nothing done", 0.0, None), until=done
        )
    first = next(each for each in caplog.records if "nothing done" in each.getMessage())
    assert (first.exc_info is None) == isinstance(error, HeadwayError)


def test_a_task_that_hangs_delays_no_other() -> None:
    beats, done = [], Event()

    async def hang() -> None:
        await anyio.sleep(math.inf)

    async def beat() -> None:
        beats.append(1)
        if len(beats) == 5:
            done.set()

    for_turns(
        lambda: run_periodically(hang, SystemClock(), "house not kept", 0.0, None),
        lambda: run_periodically(beat, SystemClock(), "no heartbeat", 0.0, None),
        until=done,
    )


def test_a_turn_begins_when_it_is_woken() -> None:
    wake, turns, done = Event(), [], Event()

    async def body() -> None:
        turns.append(1)
        if len(turns) == 3:
            done.set()

    async def waker() -> None:
        while True:
            await anyio.sleep(0.01)
            wake.set()

    for_turns(lambda: run_periodically(body, SystemClock(), "", math.inf, wake), waker, until=done)


def test_the_heartbeat_goes_on_while_the_engine_and_every_other_thread_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_node, "_HEARTBEAT_EVERY_S", 0.05)
    answer, beats = threading.Event(), threading.Semaphore(0)
    worker: Any = GpuNodeWorker(work_pool_name="p")
    hang = SimpleNamespace(trim_logs=answer.wait)
    worker._site = SimpleNamespace(
        clock=SystemClock(),
        runtime=hang,
        settings=SimpleNamespace(node="n", pool="gpu", state_dir=Path("/nowhere")),
    )
    monkeypatch.setattr(gpu_node, "heartbeat", lambda *_: beats.release() or True)
    worker._janitor = SimpleNamespace(stop_container=None)
    worker._starts = SimpleNamespace(resting=frozenset(), held=frozenset())
    host = HostReading(64 * GIB, 4 * GIB, 0.25, 100 * GIB)
    worker._reading = NodeReading(SystemClock().now(), host)
    worker._sampler = SimpleNamespace(tick=answer.wait)
    worker._gpu_watch = SimpleNamespace(look=lambda: False, settle=lambda: None)
    worker._wake, worker._housework, worker._mended = Event(), Event(), False
    worker._news = Event()
    worker._client = worker._events = SimpleNamespace()
    monkeypatch.setattr(gpu_node, "have_fork_server", lambda _: answer.wait())

    async def main() -> None:
        own = anyio.CapacityLimiter(1)
        limiter = anyio.to_thread.current_default_thread_limiter()
        for _ in range(int(limiter.total_tokens) - 3):  # the others' three are those above
            limiter.acquire_on_behalf_of_nowait(object())
        async with anyio.create_task_group() as group:
            worker._runs_task_group = group
            worker._begin_tasks()
            try:
                with anyio.fail_after(20):
                    for _ in range(5):
                        await anyio.to_thread.run_sync(
                            beats.acquire, limiter=own, abandon_on_cancel=True
                        )
                assert limiter.available_tokens == 0
            finally:
                answer.set()
                beats.release()
                group.cancel_scope.cancel()

    asyncio.run(main())


def test_nothing_is_pruned_before_the_operators_settings_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How long runs are kept may have been changed while no worker was there."""
    pruned: list[object] = []
    completed: list[object] = []
    monkeypatch.setattr(gpu_node, "tidy", pruned.append)
    monkeypatch.setattr(gpu_node, "tidy_store", pruned.append)
    monkeypatch.setattr(gpu_node, "trim_code", pruned.append)
    monkeypatch.setattr(gpu_node, "tidy_uploads", pruned.append)
    monkeypatch.setattr(gpu_node, "tidy_environments", pruned.append)
    monkeypatch.setattr(gpu_node, "try_means_again", pruned.append)
    monkeypatch.setattr(gpu_node, "complete_removals", completed.append)

    async def deleted(site: object, _: object) -> None:
        pruned.append(site)

    monkeypatch.setattr(gpu_node, "delete_expired_runs", deleted)
    worker: Any = GpuNodeWorker(work_pool_name="p")
    worker._site, worker._pool, worker._house_kept = "site", "pool", False
    asyncio.run(worker._prune())
    assert (pruned, completed) == ([], ["site"])  # what was begun is completed in any case
    worker._house_kept = True
    asyncio.run(worker._prune())
    assert pruned == ["site"] * 7  # here, store, code, uploads, environments, means of memory, rows
    pruned.clear()

    def fails(_: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(gpu_node, "complete_removals", fails)
    with pytest.raises(OSError, match="read-only"):
        asyncio.run(worker._prune())
    assert pruned == ["site"] * 7  # one step keeps no other from being done
