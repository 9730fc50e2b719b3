"""Jobs as an engine and the shared folder have them, where one of both lacks something."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.decide import Do, Side, decide
from headway.engine.judge import NO_TRACE
from headway.engine.place import Place
from headway.engine.port import Phase, Request
from headway.model.run import ExitKind
from tests.ports.clock import FakeClock
from tests.ports.engine import POOL, FakeCluster, FakeEngine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    found = FakeEngine(Place(tmp_path), "s", SystemClock())
    found.cluster = FakeCluster(slots=0)
    yield found
    found.cluster.end()


def request(key: str = "r-1") -> Request:
    return Request(key, key, POOL, ("true",), 1, 1)


def test_a_job_whose_folder_is_not_seen_lives_while_the_engine_says_so(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.submit(request())
    shutil.rmtree(tmp_path / "r-1")
    assert [(job.key, job.phase) for job in engine.jobs()] == [("r-1", Phase.WAITING)]
    engine.cluster.cancel("1")
    assert engine.jobs() == ()


def test_a_job_that_ended_before_its_key_was_forgotten_is_none_of_the_next_try(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.submit(request())
    engine.cancel([("r-1", 0)])
    assert [(job.phase, job.is_cancelled) for job in engine.jobs()] == [(Phase.ENDED, True)]
    engine.forget("r-1")
    with engine._place.locked("r-1"):  # killed before the engine had it
        engine._place.prepare(request(), "")
    assert engine.jobs() == ()
    assert engine.submit(request()).is_new
    (tmp_path / "r-1/job").unlink()  # killed before that was noted
    assert [(job.phase, job.engine_id) for job in engine.jobs()] == [(Phase.WAITING, "2")]
    assert engine.submit(request()).engine_id == "2"


def test_who_is_killed_while_it_forgets_leaves_nothing_of_the_job(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.submit(request())
    engine.cancel([("r-1", 0)])
    engine.jobs()

    def killed(folder: Path) -> None:
        (folder / "request.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headway.engine.place.remove", killed)
        with pytest.raises(KeyboardInterrupt):
            engine.forget("r-1")
    assert engine.jobs() == ()
    assert engine.submit(request()).is_new  # else it would be taken for one that has ended
    engine.forget("r-1")
    assert not [path for path in tmp_path.iterdir() if path.name.endswith("r-1")]
    assert not list(tmp_path.glob(".*"))


def test_a_folder_whose_name_is_no_key_is_left_alone(engine: FakeEngine, tmp_path: Path) -> None:
    engine.submit(request())
    shutil.copytree(tmp_path / "r-1", tmp_path / "r-1 (copy)")
    (tmp_path / "r-1/1.old").touch()
    assert [job.key for job in engine.jobs()] == ["r-1"]


def test_one_that_ended_well_and_left_no_trace_has_ended_nobody_knows_how(tmp_path: Path) -> None:
    """An engine that has lost its newest memory takes it for another one."""
    clock = FakeClock()
    engine = FakeEngine(Place(tmp_path), "s", clock)
    engine.cluster = FakeCluster(slots=0)
    engine.submit(request())
    (entry,) = engine.cluster.entries()
    entry.phase, entry.kind = Phase.ENDED, ExitKind.OK
    (job,) = engine.jobs()
    assert (job.phase, job.end) == (Phase.ENDING, None)  # it may be seen here in a moment
    clock.sleep(61.0)
    (job,) = engine.jobs()
    assert (job.phase, job.end, job.reason) == (Phase.ENDED, None, NO_TRACE)
    assert decide(Side.WAITS, job) == (Do.FORGET,)  # and is submitted anew


@pytest.mark.parametrize("kind", [ExitKind.FAILED, ExitKind.INFRASTRUCTURE, ExitKind.TIMED_OUT])
def test_what_a_machine_says_of_memory_counts_where_the_engine_says_not_why(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: ExitKind
) -> None:
    monkeypatch.setattr(FakeEngine, "_for_memory", re.compile("oom-kill event"))
    engine.submit(request())
    (tmp_path / "r-1/batch.log").write_text("error: Detected 1 oom-kill event of a step\n")
    (entry,) = engine.cluster.entries()
    entry.phase, entry.kind = Phase.ENDED, kind
    (job,) = engine.jobs()
    assert job.end is not None
    assert job.end.kind is (kind if kind is ExitKind.TIMED_OUT else ExitKind.OUT_OF_MEMORY)
