"""The follower of several engines, one of which cannot be opened."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.leader import follower


def test_an_engine_that_cannot_be_opened_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("pbs", "slurm")
    pools = {name: SimpleNamespace(engine=name, node="n", pool=name) for name in names}
    engines = SimpleNamespace(pools=lambda: pools)
    site: Any = SimpleNamespace(
        ledger=SimpleNamespace(engines=engines), settings=SimpleNamespace(node="n", pool="")
    )
    site.of_pool = lambda pool: SimpleNamespace(
        ledger=site.ledger, settings=SimpleNamespace(node="n", pool=pool), clock=SystemClock()
    )
    site.clock = SystemClock()
    led: list[str] = []
    has_led = anyio.Event()

    def open_engine(_: object, name: str) -> str:
        if name == "pbs":
            raise InvalidInput("engine", name, "install PSI/J here")
        return name

    async def lead(own: Any, _: object, jobs_of: Callable[[], Any]) -> None:
        jobs_of()
        led.append(own.settings.pool)
        has_led.set()

    @asynccontextmanager
    async def client() -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(follower, "open_engine", open_engine)
    monkeypatch.setattr(follower, "EngineJobs", lambda engine, _: engine)
    monkeypatch.setattr(follower, "get_client", client)
    monkeypatch.setattr(follower, "_lead", lead)
    daemon = SimpleNamespace(beat=lambda: None)
    monkeypatch.setattr(follower, "follower_daemon", lambda _: daemon)

    async def until_led() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower._main, site)
            with anyio.fail_after(30.0):
                await has_led.wait()
            tasks.cancel_scope.cancel()

    anyio.run(until_led)
    assert led == ["slurm"]
