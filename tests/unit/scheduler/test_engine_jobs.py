"""When an engine is asked for its jobs, and what is said while it does not answer."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.engine.errors import EngineAway
from headway.engine.place import Place
from headway.scheduler.engine_jobs import EngineJobs
from tests.ports.clock import FakeClock
from tests.ports.engine import FakeCluster, FakeEngine


def test_until_it_has_answered_once_nothing_is_said_of_its_jobs(tmp_path: Path) -> None:
    clock = FakeClock()
    site: Any = SimpleNamespace(clock=clock)
    engine = FakeEngine(Place(tmp_path), "s", clock)
    engine.cluster = FakeCluster(is_away=True)
    jobs = EngineJobs(engine, site)
    for _ in range(3):  # the others within its pause
        with pytest.raises(EngineAway):
            jobs.now()
    engine.cluster.is_away = False
    clock.sleep(600.0)
    assert jobs.now() == {}
    engine.cluster.is_away = True
    clock.sleep(600.0)
    assert jobs.now() == {}
