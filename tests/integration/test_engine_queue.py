"""The follower's rounds over a pool of an engine, with the fake engine and a real ledger."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headway.clock import SystemClock
from headway.engine import port
from headway.engine.decide import Do
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.login import Login
from headway.engine.place import Place
from headway.engine.port import After, Nice, Phase, Request
from headway.errors import CodeMissing, LeaseLost
from headway.forecast import Forecaster
from headway.ledger.calls import scheduler_of
from headway.ledger.records import RunRecord
from headway.model.array import Array
from headway.model.job import TrainingJob
from headway.model.lease import Refuse
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.run.on_engine import EngineAttempt, EngineLog
from headway.runtime.errors import RuntimeFailure
from headway.scheduler.engine_jobs import EngineJobs
from headway.scheduler.engine_queue import EngineQueue
from headway.scheduler.limits import Gates
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from tests.ports.engine import POOL, FakeCluster, FakeEngine
from tests.support.postgresql import with_ledger

pytestmark = pytest.mark.usefixtures("often")
PATIENCE_S = 60.0


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.scheduler.engine_jobs.pause_s", lambda took_s, failures: 0.0)


class Follower:
    """A queue, and rounds of it until something is so."""

    pool = POOL

    def __init__(self, home: Path) -> None:
        settings = Settings(home=home, runtime="process", node="here")
        self.cluster = FakeCluster()
        node = Site(settings, SystemClock())
        join_site(node)
        self.site = node.of_pool(self.pool)
        self.begin_anew()
        found = self.jobs.engine.inspect().pools
        self.site.ledger.engines.keep("slurm", "here", [(self.pool, found[0])])

    def begin_anew(self) -> None:
        """As after its process was killed."""
        self.jobs = EngineJobs(self.engine(), self.site)
        self.queue = EngineQueue(self.site, self.jobs)
        self.site.worker_token += "x"
        self.queue.contend(reaches_prefect=True)

    def engine(self) -> Any:
        engine = FakeEngine(Place(self.site.settings.slurm_dir), "s", SystemClock())
        engine.cluster = self.cluster
        return engine

    def enqueue(self, run_id: str, *command: str, owner: str = "o", **job: Any) -> None:
        document = {
            "name": "j",
            "owner": owner,
            "team": "t",
            "python": "3",
            "command": list(command),
            "resources": {"cpus": 1, "host_memory": "64MiB"},
        } | job
        self.site.ledger.runs.enqueue(
            run_id, document, name=run_id, owner=owner, team="t", pool=self.pool, priority=0,
            submitted_at=self.site.ledger.now(),
        )  # fmt: skip

    def run(self, run_id: str) -> RunRecord:
        return self.site.ledger.runs.get(run_id)

    def until(self, so: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        end_s = time.monotonic() + within_s
        while not so():
            assert time.monotonic() < end_s, self.site.ledger.runs.waiting(self.pool)
            self.queue.run_pass()
            time.sleep(0.05)

    def ended(self, run_id: str) -> RunRecord:
        self.until(lambda: self.run(run_id).state is RunState.ENDED)
        return self.run(run_id)

    def running(self, run_id: str) -> RunRecord:
        self.until(lambda: self.run(run_id).state is RunState.RUNNING)
        return self.run(run_id)


@pytest.fixture
def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    # As on an ordinary user's site: the fake knows no accounts.
    monkeypatch.setattr("headway.engine.login.is_by_login", lambda _: False)
    found = Follower(with_ledger(tmp_path))
    yield found
    found.cluster.end()
    found.site.ledger.close()


def sh(text: str) -> tuple[str, str, str]:
    return "sh", "-c", text


def test_a_run_is_handed_in_followed_and_learnt_of(follower: Follower) -> None:
    out = (
        'echo "epoch 1/2 loss 0.5"; echo m > $HEADWAY_OUTPUTS/model; sleep 2; echo $HEADWAY_ATTEMPT'
    )
    follower.enqueue("r1", *sh(out))
    run = follower.ended("r1")
    assert run.exit is not None
    assert (run.exit.kind, run.exit.code) == (ExitKind.OK, 0)
    assert run.measurement is not None
    assert run.measurement.host_peak_bytes
    folder = follower.site.settings.runs_dir / "r1"
    assert (folder / "outputs/model").read_text() == "m\n"
    assert (folder / "log/attempt-1.log").read_text() == "epoch 1/2 loss 0.5\n1\n"
    assert follower.site.ledger.progress.latest("r1") is not None
    assert [(step.name, step.state) for step in follower.site.ledger.steps.of_run("r1")] == [
        (name, "done") for name in ("stage_data", "admit", "train", "update_estimates", "clean_up")
    ]
    follower.queue.run_pass()
    assert follower.jobs.engine.jobs() == ()  # its files of it are let go of
    assert len(follower.site.ledger.traces.all()) == 1
    follower.enqueue("r2", *sh(out))
    follower.ended("r2")
    asked = follower.cluster.entries()[-1].request
    assert asked.time_limit_s == 310.0  # the least, with its grace: by what was learnt


def test_what_comes_after_a_count_is_told_by_the_runs_before(follower: Follower) -> None:
    follower.enqueue("r1", *sh('echo "epoch 1/1 loss 0.5"; sleep 1'))
    follower.ended("r1")
    follower.enqueue("r2", *sh('echo "epoch 1/1 loss 0.5"; sleep 300'))
    follower.running("r2")
    log = EngineLog(EngineAttempt(follower.site, "r2"), None)
    law = log._remaining._after
    assert law is not None
    assert 0.0 < math.exp(law.mean) < PATIENCE_S


def test_a_user_ends_it_wherever_it_is(follower: Follower) -> None:
    from headway.gateway.actions import cancel_in_ledger

    for run_id in ("w", "r"):
        follower.enqueue(run_id, *sh("sleep 300"))
    follower.running("r")
    for run_id in ("w", "r"):
        cancel_in_ledger(follower.site.ledger, run_id, "by me")
    follower.until(lambda: not follower.jobs.engine.jobs())
    assert all(each.phase is Phase.ENDED for each in follower.cluster.entries())
    assert follower.run("r").exit.kind is ExitKind.CANCELLED  # type: ignore[union-attr]


def test_an_attempt_waits_until_the_job_of_the_one_before_has_ended(
    follower: Follower, tmp_path: Path
) -> None:
    ends = f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 0' TERM; echo up; "
    follower.enqueue("r", *sh(ends + "while :; do sleep 0.1; done"), stop_grace="60s")
    first = follower.running("r")
    log = follower.site.settings.runs_dir / "r/log/attempt-1.log"
    follower.until(lambda: log.exists() and log.read_text())
    why = Exit(ExitKind.CANCELLED, None, "suspended by me")
    follower.site.ledger.runs.suspend(first.unleased, why)
    follower.site.ledger.runs.resume("r")
    for _ in range(3):
        follower.queue.run_pass()
    assert "attempt before" in follower.run("r").reason
    (one,) = follower.cluster.entries()
    assert one.phase is Phase.RUNNING
    (tmp_path / "go").touch()
    assert follower.running("r").attempt == 2
    assert one.phase is Phase.ENDED


def test_a_run_suspended_in_the_queue_is_handed_in_anew_once_resumed(follower: Follower) -> None:
    follower.cluster.slots = 0
    follower.enqueue("r", *sh(":"))
    follower.until(follower.cluster.entries)
    waiting = follower.run("r")
    why = Exit(ExitKind.CANCELLED, None, "suspended by me")
    follower.site.ledger.runs.suspend(waiting.unleased, why)
    follower.jobs.engine._ask_to_stop, ask = lambda *_: None, follower.jobs.engine._ask_to_stop  # type: ignore[method-assign]
    follower.queue.run_pass()  # its mark is there, and the engine has not heard of it
    follower.jobs.engine._ask_to_stop = ask  # type: ignore[method-assign]
    follower.site.ledger.runs.resume("r")
    follower.until(lambda: len(follower.cluster.entries()) > 1)
    follower.cluster.slots = 4
    run = follower.ended("r")
    assert run.attempt == 1
    assert run.exit is not None
    assert run.exit.kind is ExitKind.OK
    assert [each.kind for each in follower.cluster.entries()] == [ExitKind.CANCELLED, ExitKind.OK]


def test_what_others_do_with_the_engines_own_commands_is_told(follower: Follower) -> None:
    follower.cluster.slots = 0
    follower.enqueue("r", *sh("sleep 300"))
    follower.until(follower.cluster.entries)
    job = follower.cluster.entries()[0].engine_id
    follower.until(lambda: "nothing is free" in follower.run("r").reason)
    follower.cluster.hold(job)
    follower.until(lambda: "held" in follower.run("r").reason)
    follower.cluster.slots = 4
    follower.cluster.release(job)
    follower.running("r")
    follower.cluster.slots = 0
    follower.cluster.requeue(job)
    follower.until(lambda: follower.run("r").state is RunState.WAITING)
    assert "again" in follower.run("r").reason
    follower.cluster.slots = 4
    assert follower.running("r").attempt == 1
    follower.cluster.cancel(job)
    exit_ = follower.ended("r").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.CANCELLED
    assert "somebody" in exit_.message


def test_one_ended_at_a_limit_that_nobody_named_gets_twice_the_time(follower: Follower) -> None:
    follower.enqueue("r", *sh("sleep 300"), retries=1, stop_grace="1s")
    follower.until(follower.cluster.entries)
    for entry in follower.cluster.entries():
        object.__setattr__(entry.request, "time_limit_s", 1.0)
    follower.until(lambda: follower.run("r").attempt == 2)
    assert follower.run("r").demand_override == {"time_limit_s": 2.0}


def test_no_run_is_handed_in_twice_and_none_is_lost(follower: Follower, tmp_path: Path) -> None:
    for at in range(10):
        follower.enqueue(f"r{at}", *sh(f"echo x >> {tmp_path}/count-{at}"))
    for _ in range(20):  # killed after its engine has taken one, before anybody noted that
        submit = follower.jobs.engine._submit

        def die(*words: Any, submit: Any = submit) -> str:
            submit(*words)
            raise KeyboardInterrupt

        follower.jobs.engine._submit = die  # type: ignore[method-assign]
        with suppress(KeyboardInterrupt):
            follower.queue.run_pass()
        follower.begin_anew()
    for at in range(10):
        run = follower.ended(f"r{at}")
        assert run.exit is not None
        assert run.exit.kind is ExitKind.OK
        assert (tmp_path / f"count-{at}").read_text() == "x\n"


def test_an_engine_that_is_away_loses_nothing(follower: Follower) -> None:
    follower.enqueue("r", *sh("sleep 1"))
    follower.running("r")
    follower.cluster.is_away = True
    for _ in range(3):
        follower.queue.run_pass()
    assert follower.run("r").state is RunState.RUNNING
    follower.cluster.is_away = False
    assert follower.ended("r").exit.kind is ExitKind.OK  # type: ignore[union-attr]


@pytest.mark.parametrize("away", [True, False])
def test_once_the_engine_takes_none_no_other_is_tried_until_it_answers_again(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    tries: list[str] = []
    engine = follower.jobs.engine
    submit = engine._submit
    full = EngineRefused("the fake", "k", "QOSMaxSubmitJobPerUserLimit")

    def busy(request: Request, *_: Any) -> str:
        tries.append(request.key)
        raise EngineAway("the fake", "submit", "busy") if away else full

    engine._submit = busy  # type: ignore[method-assign]
    for at in range(3):
        follower.enqueue(f"r{at}", *sh(":"))
    follower.queue.run_pass()
    monkeypatch.setattr(follower.jobs, "_next_s", math.inf)
    follower.queue.run_pass()
    assert tries == ["r0-1"]
    told = {follower.run(f"r{at}").reason for at in range(3)}
    assert len(told) == 1
    assert ("busy" if away else "QOSMaxSubmit") in told.pop()
    engine._submit = submit  # type: ignore[method-assign]
    monkeypatch.setattr(follower.jobs, "_next_s", 0.0)
    for at in range(3):
        follower.ended(f"r{at}")


@pytest.mark.parametrize("away", [True, False])
def test_what_keeps_one_login_back_keeps_no_other(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    who = {name: Login(name, os.getuid(), os.getgid(), "/") for name in ("ada", "bob")}
    monkeypatch.setattr("headway.scheduler.engine_round.login_of", lambda *words: who[words[-1]])
    tries: list[str] = []
    engine = follower.jobs.engine
    submit = engine._submit
    full = EngineRefused("the fake", "k", "QOSMaxSubmitJobPerUserLimit")

    def busy(request: Request, *words: Any) -> str:
        tries.append(request.key)
        if request.login == who["ada"]:
            raise EngineAway("the fake", "submit", "busy") if away else full
        return str(submit(request, *words))

    engine._submit = busy  # type: ignore[method-assign]
    for run_id, owner in (("r0", "ada"), ("r1", "ada"), ("r2", "bob")):
        follower.enqueue(run_id, *sh("sleep 60"), owner=owner)
    follower.queue.run_pass()
    monkeypatch.setattr(follower.jobs, "_next_s", math.inf)
    follower.queue.run_pass()
    assert tries == ["r0-1", "r2-1"]
    assert follower.run("r0").reason == follower.run("r1").reason


def test_a_run_whose_account_is_not_known_for_a_while_waits(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the service that knows accounts starts again."""
    monkeypatch.setattr("headway.scheduler.engine_round._AT_ONCE", 1)
    found = "headway.scheduler.engine_round.login_of"

    def login(*words: Any) -> Refuse | None:
        return Refuse("owner", "ada", "no such account") if words[-1] == "ada" else None

    monkeypatch.setattr(found, login)
    follower.enqueue("r0", *sh(":"), owner="ada")
    follower.enqueue("r1", *sh(":"), owner="bob")
    follower.ended("r1")
    waits = follower.run("r0")
    assert (waits.state, waits.reason) == (
        RunState.WAITING, "it is not submitted yet: no such account",
    )  # fmt: skip
    monkeypatch.setattr(found, lambda *_: None)
    assert follower.ended("r0").exit.kind is ExitKind.OK  # type: ignore[union-attr]


def test_a_run_that_cannot_be_handed_in_ends_and_one_with_a_fault_stops_no_other(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = EngineAttempt.request

    def request(attempt: EngineAttempt, *words: Any) -> Any:
        if attempt.run_id == "r0":
            raise CodeMissing("c1", "it was removed")
        if attempt.run_id == "r1":
            raise ZeroDivisionError
        return asked(attempt, *words)

    monkeypatch.setattr(EngineAttempt, "request", request)
    for at in range(3):
        follower.enqueue(f"r{at}", *sh(":"))
    assert follower.ended("r2").exit.kind is ExitKind.OK  # type: ignore[union-attr]
    assert follower.run("r1").state is RunState.WAITING
    assert "ZeroDivisionError" in caplog.text
    exit_ = follower.run("r0").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.REFUSED
    assert "it was removed" in exit_.message


@pytest.mark.parametrize(
    "error", [RuntimeFailure("no such certificates"), OSError("the disk is full")]
)
def test_a_run_that_cannot_be_made_ready_now_is_told_why_and_tried_again(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def request(*_: object) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(EngineAttempt, "request", request)
        follower.enqueue("r", *sh(":"))
        follower.until(lambda: str(error) in follower.run("r").reason)
        assert follower.run("r").state is RunState.WAITING
    assert follower.ended("r").exit.kind is ExitKind.OK  # type: ignore[union-attr]


def test_what_an_attempt_with_more_needs_is_foretold_once(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower.enqueue("r", *sh("sleep 300"), retries=1)
    follower.running("r")
    follower.cluster.slots = 0
    foretold: list[Any] = []
    forecast = Forecaster.forecast

    def counted(self: Forecaster, job: TrainingJob, **given: Any) -> Any:
        foretold.append(given["override"])
        return forecast(self, job, **given)

    monkeypatch.setattr(Forecaster, "forecast", counted)
    more = {"time_limit_s": 900.0}
    exit_ = Exit(ExitKind.TIMED_OUT, None, "over")
    fence = follower.run("r").unleased
    follower.site.ledger.runs.requeue(fence, exit_, Measurement(), demand_override=more)
    for _ in range(4):
        follower.queue.run_pass()
    assert foretold == [more]
    follower.begin_anew()
    follower.queue.run_pass()
    assert foretold == [more, more]


def test_another_submit_host_goes_on_with_the_jobs_of_one_that_was_removed(
    follower: Follower, tmp_path: Path
) -> None:
    ends = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    for run_id in ("a", "b"):
        follower.enqueue(run_id, *sh(f"echo x >> {tmp_path}/{run_id}; {ends}"))
    follower.cluster.slots = 1
    follower.running("a")
    follower.until(lambda: len(follower.cluster.entries()) == 2)
    engine = FakeEngine(Place(tmp_path / "other"), "s", SystemClock())
    engine.cluster = follower.cluster
    follower.jobs = EngineJobs(engine, follower.site)
    follower.queue = EngineQueue(follower.site, follower.jobs)
    follower.queue.contend(reaches_prefect=True)
    for _ in range(3):
        follower.queue.run_pass()
    assert len(follower.cluster.entries()) == 2
    assert follower.run("a").state is RunState.RUNNING
    follower.cluster.slots = 4
    follower.running("b")
    (tmp_path / "go").touch()
    for run_id in ("a", "b"):  # how their first attempts ended is in the other one's folder
        run = follower.ended(run_id)
        assert run.exit is not None
        assert (run.exit.kind, run.attempt) == (ExitKind.OK, 2)
        assert (tmp_path / run_id).read_text() == "x\nx\n"


def test_what_another_attempt_has_by_now_is_none_of_this_one(follower: Follower) -> None:
    follower.enqueue("r", *sh("sleep 300"))
    first = follower.running("r")
    why = Exit(ExitKind.CANCELLED, None, "suspended by me")
    follower.site.ledger.runs.suspend(first.unleased, why)
    with pytest.raises(LeaseLost, match="attempt 2"):
        follower.queue._round.do(Do.CONCLUDE, first, None)
    assert follower.run("r").state is RunState.WAITING


def test_what_the_pool_cannot_have_is_refused_before_the_queue(follower: Follower) -> None:
    follower.enqueue("r", "x", resources={"cpus": 1, "host_memory": "9TiB"})
    exit_ = follower.ended("r").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.REFUSED
    assert "resources.host_memory" in exit_.message
    assert not follower.cluster.entries()


def test_a_run_follows_the_job_of_another_one_in_the_engines_own_queue(
    follower: Follower, tmp_path: Path
) -> None:
    order = f"echo $HEADWAY_RUN_ID >> {tmp_path}/order"
    follower.enqueue("a", *sh(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; {order}"))
    follower.enqueue("b", *sh(order), after={"run": "a", "when": "ok"})
    follower.enqueue("c", *sh(order), after={"run": "a", "when": "any"})
    follower.running("a")
    follower.until(lambda: len(follower.cluster.entries()) == 2)
    follows = follower.cluster.entries()[1].request
    assert (follows.key, follows.parts) == ("b-1", (After("a-1"),))
    follower.queue.run_pass()
    assert "the end of another job" in follower.run("b").reason
    assert "waits for run a" in follower.run("c").reason  # that may be tried again
    (tmp_path / "go").touch()
    for run_id in ("b", "c"):
        assert follower.ended(run_id).exit.kind is ExitKind.OK  # type: ignore[union-attr]
    assert (tmp_path / "order").read_text().split()[0] == "a"


def array(follower: Follower, size: int, at_most: int | None, created: int) -> str:
    """An array of which so many members have become runs, and as many may run at once do."""
    met = follower.site.settings.runs_dir.parent / "met"
    met.mkdir()
    together = min(at_most or created, created)
    meets = f"touch {met}/$0; until [ $(ls {met} | wc -l) -ge {together} ]; do sleep 0.05; done"
    job = {
        "name": "a", "owner": "o", "team": "t", "python": "3",
        "command": ["sh", "-c", f"echo $0 $HEADWAY_ARRAY_INDEX; {meets}; sleep 1", "{n}"],
        "resources": {"cpus": 1, "host_memory": "64MiB"},
    }  # fmt: skip
    ledger = follower.site.ledger
    found = ledger.arrays.add(
        job, Array({"n": tuple(range(10, 10 + size))}, at_most=at_most), name="a", owner="o",
        team="t", pool=POOL, queue="", key=None, submitted_at=ledger.now(),
    )  # fmt: skip
    for index in range(1, created + 1):
        assert ledger.arrays.join(found.array_id, index, f"m{index}") is not None
    return found.array_id


@pytest.mark.parametrize("at_most", [None, 2])
def test_members_of_an_array_are_handed_in_as_an_array_with_its_limit(
    follower: Follower, at_most: int | None
) -> None:
    array_id = array(follower, size=5, at_most=at_most, created=4)
    follower.queue.run_pass()
    if at_most:
        assert not follower.cluster.entries()
        assert "all of its members" in follower.run("m1").reason
    follower.site.ledger.arrays.join(array_id, 5, "m5")
    most = 0

    def all_ended() -> bool:
        nonlocal most
        running = [each for each in follower.cluster.entries() if each.phase is Phase.RUNNING]
        most = max(most, len(running))
        return all(follower.run(f"m{at}").state is RunState.ENDED for at in range(1, 6))

    follower.until(all_ended)
    assert most == (at_most or 4)
    entries = follower.cluster.entries()
    assert len(entries) == 5
    assert len({each.engine_id for each in entries}) == (1 if at_most else 2)
    for at in range(1, 6):
        run = follower.run(f"m{at}")
        assert run.exit is not None
        assert run.exit.kind is ExitKind.OK
        log = follower.site.settings.runs_dir / f"m{at}/log/attempt-1.log"
        assert log.read_text() == f"{9 + at} {at}\n"
    follower.queue.run_pass()
    assert not [*follower.site.settings.slurm_dir.glob("*m*")]


def test_a_follower_that_dies_with_an_array_in_its_hands_hands_it_in_once(
    follower: Follower,
) -> None:
    array(follower, size=4, at_most=4, created=4)
    submit = follower.jobs.engine._submit

    def die(*words: Any) -> str:
        submit(*words)
        raise KeyboardInterrupt

    follower.jobs.engine._submit = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        follower.queue.run_pass()
    follower.begin_anew()
    for at in range(1, 5):
        assert follower.ended(f"m{at}").exit.kind is ExitKind.OK  # type: ignore[union-attr]
    assert len(follower.cluster.entries()) == 4


@pytest.mark.parametrize("at_most", [None, 1])
@pytest.mark.parametrize(
    ("said", "takes"), [("Invalid job array specification", 1), ("job submit limit", 2)]
)
def test_what_an_engine_does_not_take_as_one_array_comes_in_parts_within_its_limit(
    follower: Follower, said: str, takes: int, at_most: int | None
) -> None:
    array(follower, size=4, at_most=at_most, created=4)
    submit, most = follower.jobs.engine._submit, 0

    def at_most_so_many(request: Request, *words: Any) -> str:
        if any(isinstance(part, port.Array) and part.members > takes for part in request.parts):
            raise EngineRefused("the fake", request.key, said)
        return submit(request, *words)

    follower.jobs.engine._submit = at_most_so_many  # type: ignore[method-assign]

    def all_ended() -> bool:
        nonlocal most
        running = [each for each in follower.cluster.entries() if each.phase is Phase.RUNNING]
        most = max(most, len(running))
        return all(follower.run(f"m{at}").state is RunState.ENDED for at in range(1, 5))

    follower.until(all_ended)
    assert most <= (at_most or 4)
    for at in range(1, 5):
        assert follower.run(f"m{at}").exit.kind is ExitKind.OK  # type: ignore[union-attr]
    follower.queue.run_pass()
    assert not [*follower.site.settings.slurm_dir.glob("*m*")]


@pytest.mark.parametrize("retries", [0, 1])
def test_who_follows_one_that_failed_waits_for_its_next_try_or_ends(
    follower: Follower, retries: int
) -> None:
    once = 'test "$HEADWAY_ATTEMPT" = 2 || exec sleep 300'
    follower.enqueue("a", *sh(once), retries=retries, stop_grace="1s")
    follower.enqueue("b", *sh(":"), after={"run": "a", "when": "ok"})
    follower.until(lambda: len(follower.cluster.entries()) == 2)
    object.__setattr__(follower.cluster.entries()[0].request, "time_limit_s", 1.0)
    exit_ = follower.ended("b").exit
    assert exit_ is not None
    if retries:
        assert exit_.kind is ExitKind.OK
        follows = [each.request.key for each in follower.cluster.entries()]
        assert follows.count("b-1") == 2
    else:
        assert exit_.kind is ExitKind.CANCELLED
        assert "which ended as timed_out" in exit_.message


def test_a_queue_below_the_first_one_is_nice(follower: Follower) -> None:
    gates = Gates(priorities={"default": -1, "urgent": 0})
    ledger, now = follower.site.ledger, follower.site.ledger.now()
    job = {"name": "j", "owner": "o", "team": "t", "python": "3", "command": ["true"]}
    for queue, priority in gates.priorities.items():
        ledger.runs.enqueue(
            queue, job, name=queue, owner="o", team="t", pool=POOL, queue=queue,
            priority=priority, submitted_at=now,
        )  # fmt: skip
    follower.queue.run_pass(gates)
    asked = {each.request.name: each.request.parts for each in follower.cluster.entries()}
    assert asked == {"urgent": (), "default": (Nice(1000),)}


def test_the_queue_of_each_pool_hears_its_own_calls(follower: Follower) -> None:
    sites = [follower.site.of_pool(pool) for pool in ("a", "b")]
    heard = [site.ledger.calls for site in sites]
    for pool, calls in zip("ab", heard, strict=True):
        calls.wait(scheduler_of(pool), 0.0)  # listens from here on
    follower.site.ledger.calls.send([scheduler_of("b")], "r")
    assert heard[1].wait(scheduler_of("b"), PATIENCE_S) == ["r"]
    assert heard[0].wait(scheduler_of("a"), 0.0) == []
    for calls in heard:
        calls.close()
