"""Following one container, on a fake engine and a fake clock."""

import json
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import NormalDist

import pytest

from headway.errors import LeaseLost, LedgerUnreachable
from headway.estimate.remaining.course import Course
from headway.estimate.remaining.remaining_time import RemainingTime
from headway.ledger.series import MAX_POINTS
from headway.model.container_policy import ContainerPolicy
from headway.model.node import GpuProcess, GpuReading
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Prediction
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.progress.parser import LogParser
from headway.run.ahead import Ahead
from headway.run.environment_entry import MADE, MAKING
from headway.run.follow import Findings, Follower, Watched
from headway.run.followed import Followed, GpuUse
from headway.run.log_progress import LogProgress
from headway.runtime.logfile import LogChunk
from headway.runtime.port import ContainerSpec, ContainerState, ContainerStatus, Usage
from headway.runtime.redact import Redactor
from headway.units import DAY_S, GIB
from tests.ports.clock import FakeClock
from tests.ports.runtime import FakeMachine, FakeRuntime, Script
from tests.ports.telemetry import FakeGpus


@pytest.fixture(autouse=True)
def in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is: the fake clock stands still while the log is read."""
    monkeypatch.setattr("headway.run.follow._READER_S", 60.0)


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.data = b""
        self.seen: list[Watched] = []

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        assert skipped_bytes == 0
        self.data += data

    def watched(self, now: Watched) -> None:
        self.seen.append(now)


def point(iteration: int) -> bytes:
    said = {"iteration": iteration, "total": 100, "metrics": {"loss": 1 / iteration}}
    return json.dumps({"headway": said}).encode() + b"\n"


TRAINING = Script(output=tuple((i * 1.0, point(i)) for i in range(1, 101)), runs_s=101.0)
SPEC = ContainerSpec(
    name="run-1",
    run_id="run",
    attempt=1,
    image="image",
    command=("train",),
    env={},
    mounts=(),
    log_path=Path("unused"),
    host_memory_bytes=GIB,
    cpus=1.0,
    shm_bytes=0,
)


class Site:
    """Keeps what it is given (port `Upkeep`); a test may replace what it does."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.kept: dict[int, ProgressPoint] = {}
        self.snapshots: list[float] = []
        self.redacted = 0

    def keep_points(self, before: int, points: Sequence[ProgressPoint]) -> None:
        self.kept |= dict(enumerate(points, start=before))

    def keep_snapshot(self, now: Watched) -> None:
        self.snapshots.append(now.elapsed_s)

    def check(self, elapsed_s: float, usage: Usage) -> Findings:
        return Findings()

    def pass_on(self) -> None:
        pass

    def cancellation(self, status: ContainerStatus) -> Exit | None:
        return None

    def redact(self) -> None:
        self.redacted += 1


class Bench:
    """One container on a fake engine, and someone to follow it."""

    def __init__(self, script: Script) -> None:
        self.clock = FakeClock()
        machine = FakeMachine(scripts={("train",): script})
        self.runtime = FakeRuntime("site", ContainerPolicy(), self.clock, machine)
        self.runtime.create(SPEC)
        self.runtime.start("run-1")
        self.listener = Listener()
        self.site = Site(self.clock)
        self.gpus: FakeGpus | None = None
        told = (200.0, 200.0 / 1.9, 200.0 * 1.9)
        self.prediction = Prediction(*told, basis="4 run(s) of the same job")
        self.secrets: tuple[bytes, ...] = ()
        self.usual: NormalDist | None = None
        self.usual_epochs: NormalDist | None = None

    def follow(self, max_runtime_s: float | None = None) -> Followed:
        return Follower(
            runtime=self.runtime,
            clock=self.clock,
            name="run-1",
            listener=self.listener,
            upkeep=self.site,
            gpus=self.gpus,
            granted=("GPU-0",),
            prediction=self.prediction,
            ahead=Ahead(iterations=self.usual, epochs=self.usual_epochs),
            max_runtime_s=max_runtime_s,
            grace_s=5.0,
            check_every_s=20.0,
            secrets=self.secrets,
        ).follow()


@pytest.mark.parametrize("said", ["nothing like it", "as 3 runs of its owner and size lasted"])
def test_a_guess_is_no_remaining_time_nor_is_what_another_program_took(said: str) -> None:
    bench = Bench(Script(output=(), runs_s=20.0))
    bench.prediction = Prediction(3600.0, 120.0, 86_400.0, basis=f"prior: {said}")
    bench.follow()
    assert {seen.remaining.remaining_s for seen in bench.listener.seen if seen.remaining} == {None}


def test_where_nobody_tells_a_total_what_is_left_follows_from_earlier_runs() -> None:
    log = tuple((at * 1.0, b"step: %d  loss: 0.5\n" % at) for at in range(1, 101))
    bench, epochs = (
        Bench(Script(output=log, runs_s=101.0)),
        Bench(
            Script(output=tuple((at * 1.0, b"Epoch: %d, loss: 0.5\n" % at) for at in range(1, 101)))
        ),
    )
    for each in (bench, epochs):
        each.prediction = Prediction(3600.0, 120.0, 86_400.0, basis="prior: nothing like it")
        each.usual = NormalDist(math.log(100.0), 0.1)
        each.follow()
    halfway = next(s.remaining for s in bench.listener.seen if s.elapsed_s > 50)
    assert halfway is not None
    assert halfway.remaining_s == pytest.approx(50.0, rel=0.15)
    assert 30.0 < halfway.low_s < halfway.high_s < 80.0
    # Epochs are no iterations.
    assert {s.remaining.remaining_s for s in epochs.listener.seen if s.remaining} == {None}


def test_what_is_left_follows_from_the_epochs_of_earlier_runs_whatever_their_batches() -> None:
    """Lightning's, of 1,000 epochs of 13, 10 and 9 batches; here of half as many as before."""
    log = tuple(
        (epoch + 0.2 * at, b"Epoch %d: 100%%|###| %d/5 [00:00<00:00, v_num=0]\n" % (epoch, at))
        for epoch in range(100)
        for at in range(1, 6)
    )
    bench = Bench(Script(output=log, runs_s=101.0))
    bench.prediction = Prediction(3600.0, 120.0, 86_400.0, basis="prior: nothing like it")
    bench.usual, bench.usual_epochs = NormalDist(math.log(1000.0), 0.3), NormalDist(4.605, 0.1)
    bench.follow()
    halfway = next(s for s in bench.listener.seen if s.elapsed_s > 50)
    assert halfway.remaining is not None
    assert halfway.remaining.remaining_s == pytest.approx(50.0, rel=0.15)


def test_of_several_fits_nothing_follows_from_the_iterations_of_earlier_runs() -> None:
    """These count the last fit of each alone."""
    log = tuple((at * 1.0, b"[%d]\ttrain-logloss:0.5\n" % (at % 30)) for at in range(120))
    bench = Bench(Script(output=log, runs_s=120.0))
    bench.prediction = Prediction(3600.0, 120.0, 86_400.0, basis="prior: nothing like it")
    bench.usual = NormalDist(math.log(30.0), 0.1)
    bench.follow()
    seen = [
        s.remaining.remaining_s for s in bench.listener.seen if s.remaining and s.elapsed_s > 35
    ]
    assert len(seen) > 50
    assert set(seen) == {None}


def test_the_log_becomes_points_and_remaining_time() -> None:
    bench = Bench(TRAINING)
    followed = bench.follow()
    assert followed.status.state is ContainerState.EXITED
    assert followed.runtime_s == pytest.approx(101.0, abs=1.0)
    assert [bench.site.kept[i].iteration for i in range(100)] == list(range(1, 101))
    assert bench.listener.data == b"".join(point(i) for i in range(1, 101))
    assert bench.site.kept[49].t_s == pytest.approx(50.0, abs=1.0)
    halfway = next(s for s in bench.listener.seen if s.elapsed_s > 50)
    assert halfway.remaining is not None
    assert halfway.remaining.remaining_s == pytest.approx(50.0, rel=0.1)
    first = bench.listener.seen[0]
    assert first.remaining is not None
    assert first.remaining.remaining_s == pytest.approx(200.0, rel=0.01)


def test_while_the_environment_is_made_that_is_what_the_run_does() -> None:
    output = (
        (2.0, f"headway: {MAKING} of requirements.txt; runs after\n".encode()),
        (4.0, b"Downloading torch (200MiB)\n" * 9000),  # more than is kept of the end
        (10.0, f"headway: {MADE}\n".encode()),
        (14.0, point(1)),
    )
    bench = Bench(Script(output=output, runs_s=20.0))
    bench.follow()
    seen = {round(each.elapsed_s): each.phase for each in bench.listener.seen}
    assert (seen[1], seen[3], seen[8], seen[12], seen[18]) == ("", MAKING, MAKING, "", "")


def test_a_log_that_names_epochs_is_less_sure_before_the_first_has_ended() -> None:
    def width(epochs: float | None) -> float:
        def line(i: int) -> bytes:
            said = {"iteration": i, "total": 1000}
            if epochs is not None:
                said["epoch"] = i / 1000 * epochs
            return json.dumps({"headway": said}).encode() + b"\n"

        bench = Bench(Script(output=tuple((i * 1.0, line(i)) for i in range(1, 301)), runs_s=301.0))
        bench.follow()
        left = bench.listener.seen[-1].remaining
        assert left is not None
        assert left.high_s is not None
        assert left.remaining_s is not None
        return left.high_s / left.remaining_s

    assert width(2) > 1.1 * width(None)
    assert width(10) == pytest.approx(width(None), rel=0.05)


def test_a_secret_is_in_nothing_that_the_log_becomes() -> None:
    said = [b"token hunter", b"2-and-more\n", b"again hunter2-and-more\n", point(1), b"hunter"]
    script = Script(output=tuple((i * 1.0, piece) for i, piece in enumerate(said)), runs_s=9.0)
    bench = Bench(script)
    bench.secrets = (b"hunter2-and-more",)
    followed = bench.follow()
    stars = b"*" * 16
    clean = b"token " + stars + b"\nagain " + stars + b"\n" + point(1) + b"hunter"
    assert bench.listener.data == clean
    assert clean.endswith(followed.log_tail.encode())
    assert "*" * 16 in followed.log_tail
    assert [bench.site.kept[0].iteration] == [1]
    assert bench.site.redacted > 3


def test_a_database_that_is_away_disturbs_nothing() -> None:
    bench = Bench(TRAINING)

    def away(now: Watched) -> None:
        raise LedgerUnreachable("postgresql://x", "no answer")

    bench.site.keep_snapshot = away  # type: ignore[method-assign]
    assert bench.follow().status.exit_code == 0


def test_no_point_is_lost_while_the_database_is_away() -> None:
    bench = Bench(TRAINING)
    keep = bench.site.keep_points

    def away(before: int, points: Sequence[ProgressPoint]) -> None:
        if 20.0 < bench.clock.monotonic_s() < 40.0:
            raise LedgerUnreachable("postgresql://x", "no answer")
        keep(before, points)

    bench.site.keep_points = away  # type: ignore[method-assign]
    bench.follow()
    assert [bench.site.kept[i].iteration for i in range(100)] == list(range(1, 101))


def test_what_waits_for_the_database_is_no_more_than_it_keeps() -> None:
    many = MAX_POINTS + 50
    bench = Bench(Script(output=((0.0, b"".join(map(point, range(1, many + 1)))),), runs_s=5.0))
    waited: list[int] = []
    kept: dict[int, int | None] = {}

    def away(before: int, points: Sequence[ProgressPoint]) -> None:
        waited.append(len(points))
        if bench.clock.monotonic_s() < 2.0:
            raise LedgerUnreachable("postgresql://x", "no answer")
        for number, each in enumerate(points, start=before):
            kept[min(number, MAX_POINTS - 1)] = each.iteration  # as the ledger does

    bench.site.keep_points = away  # type: ignore[method-assign]
    bench.follow()
    assert max(waited) == MAX_POINTS
    assert list(kept.values()) == [*range(1, MAX_POINTS), many]


def test_a_lost_lease_ends_the_following() -> None:
    bench = Bench(TRAINING)

    def lost(now: Watched) -> None:
        raise LeaseLost("run", 1, "it was released")

    bench.site.keep_snapshot = lost  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        bench.follow()


def test_the_time_limit_stops_the_container() -> None:
    bench = Bench(TRAINING)
    followed = bench.follow(max_runtime_s=30.0)
    assert followed.timed_out
    assert followed.runtime_s == pytest.approx(30.0, abs=2.0)


@pytest.mark.parametrize(
    ("ends_s", "exit_code", "oom_killed", "timed_out"),
    [
        (31.0, 143, False, True),
        (29.0, 143, False, False),
        (31.0, 0, False, True),
        (29.0, 0, False, False),
        (31.0, 137, True, False),
        (DAY_S, 137, False, False),  # the node was away
    ],
)
def test_a_time_limit_is_known_to_the_process_after_the_one_that_kept_it(
    ends_s: float, exit_code: int, oom_killed: bool, timed_out: bool
) -> None:
    bench = Bench(Script(runs_s=ends_s, exit_code=exit_code, oom_killed=oom_killed))
    bench.clock.sleep(2 * DAY_S)
    assert bench.follow(max_runtime_s=30.0).timed_out is timed_out


def test_limits_do_not_wait_for_who_reads_the_log_and_tells_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.run.follow._READER_S", 0.05)
    bench = Bench(TRAINING)
    stopped, in_time = threading.Event(), []

    def stop(name: str, grace_s: float) -> None:
        FakeRuntime.stop(bench.runtime, name, grace_s)
        stopped.set()

    bench.runtime.stop = stop  # type: ignore[method-assign]
    bench.listener.watched = lambda _: in_time.append(stopped.wait(20.0))  # type: ignore[method-assign]
    assert bench.follow(max_runtime_s=1.0).timed_out
    assert all(in_time)


class Flood:
    """A log that grows faster than it is read, each reading of which takes a tenth of a second."""

    def __init__(self, line: bytes, size: int) -> None:
        self.clock = FakeClock()
        self.line, self.size, self.grows = line, size, 1 << 20
        self.shown, self.skipped = 0, 0
        self.progress = LogProgress(
            self._read,
            self.clock,
            LogParser(),
            RemainingTime(),
            Redactor([b"hunter2"]),
            self._lines,
        )

    def _read(self, offset: int, limit_bytes: int) -> LogChunk:
        self.clock.sleep(0.1)
        self.size += self.grows
        start = min(offset, self.size)
        end = min(start + limit_bytes, self.size)
        first = start % len(self.line)
        data = self.line * ((end - start) // len(self.line) + 2)
        return LogChunk(data[first : first + end - start], end, 0)

    def _lines(self, data: bytes, skipped_bytes: int) -> None:
        assert b"unter2" not in data
        self.shown += len(data)
        self.skipped += skipped_bytes


@pytest.mark.parametrize("line", [b"y\n", b"\r", b"step 3/10\r", b"key hunter2\n", b"x" * 100_000])
def test_a_log_that_grows_faster_than_it_is_read_is_passed_over(line: bytes) -> None:
    flood = Flood(line, 1 << 30)
    for _ in range(3):
        began_s = flood.clock.monotonic_s()
        flood.progress.read(1.0)
        assert flood.clock.monotonic_s() - began_s < 1.0
    assert flood.skipped > (1 << 30) - (64 << 20)
    flood.grows = 0
    flood.progress.read(1.0, last=True)
    assert flood.shown + flood.skipped == flood.size
    assert len(flood.progress.tail) > 10_000


def test_the_time_in_which_the_environment_is_made_is_none_of_the_program() -> None:
    """Of a run of 40 s behind an environment of three minutes twice five minutes were told."""
    log, clock = bytearray(), FakeClock()
    remaining = RemainingTime(20.0, 10.0, 40.0)
    progress = LogProgress(
        lambda offset, size: LogChunk(
            bytes(log[offset : offset + size]), min(offset + size, len(log)), 0
        ),
        clock,
        LogParser(),
        remaining,
        Redactor([]),
        lambda data, skipped: None,
    )
    log += f"headway: {MAKING} of requirements.txt\n".encode()
    progress.read(1.0)
    assert progress.phase == MAKING
    log += f"headway: {MADE}\n".encode()
    progress.read(180.0)
    alone = remaining.at(182.0)
    assert (alone.remaining_s or 0.0) < 30.0, "by runs that lasted twenty"
    log += b"step 4/40: loss 0.5\n"
    progress.read(184.0)
    assert 20.0 < (remaining.at(184.0).remaining_s or 0.0) < 45.0
    assert (remaining.at(184.0).high_s or 0.0) < 120.0


def _reads(log: bytearray, remaining: RemainingTime) -> LogProgress:
    return LogProgress(
        lambda offset, size: LogChunk(
            bytes(log[offset : offset + size]), min(offset + size, len(log)), 0
        ),
        FakeClock(), LogParser(), remaining, Redactor([]), lambda *_: None,
    )  # fmt: skip


def test_a_program_that_writes_what_headway_writes_moves_no_begin() -> None:
    log, remaining = bytearray(), RemainingTime()
    progress = _reads(log, remaining)
    for step in range(1, 81):
        if step == 60:
            log += f"headway: {MAKING} of requirements.txt\n".encode()
        log += f"step {step}/100: loss 0.5\n".encode()
        progress.read(10.0 * step)
        if step == 60:
            log += f"headway: {MADE}\n".encode()
    assert remaining.at(800.0).remaining_s == pytest.approx(200.0, rel=0.2)


def test_who_takes_a_run_over_knows_not_when_its_environment_was_made() -> None:
    log, remaining = bytearray(), RemainingTime(4000.0, 3900.0, 4100.0)
    log += f"headway: {MAKING} of requirements.txt\n".encode() + b"x" * 70_000 + b"\n"
    log += f"headway: {MADE}\n".encode() + b"x" * 70_000 + b"\nstep 90/100: loss 0.5\n"
    _reads(log, remaining).read(3600.0)
    assert (remaining.at(3600.0).remaining_s or 0.0) < 500.0


def test_folds_of_nearly_the_same_length_count_the_same() -> None:
    log, remaining = bytearray(), RemainingTime()
    progress, at_s = _reads(log, remaining), 0.0
    for length in (100, 101, 100):
        for step in range(1, length + 1):
            at_s += 1.0
            log += f"step {step}/{length}: loss 0.5\n".encode()
            progress.read(at_s)
    assert remaining.per_s == pytest.approx(1.0, rel=0.1)
    assert progress._parser.units == 0
    for step in range(1, 11):
        at_s += 10.0
        log += f"step {step}/500: loss 0.5\n".encode()
        progress.read(at_s)
        if progress._parser.units and remaining.per_s is not None:
            assert remaining.per_s == pytest.approx(0.1, rel=0.2)
    assert progress._parser.units == 1


UNEVEN = [ProgressPoint(t_s, n) for n, t_s in enumerate([*range(40), *range(50, 650, 10)], start=1)]


@pytest.mark.parametrize("course", [None, Course.of(UNEVEN)])
def test_what_counts_something_else_has_a_speed_of_its_own(course: Course | None) -> None:
    log, seen, remaining = bytearray(), [], RemainingTime()
    progress = LogProgress(
        lambda offset, _: LogChunk(bytes(log[offset:]), len(log), 0),
        FakeClock(), LogParser(), remaining, Redactor([]), lambda *_: None, _course=course,
    )  # fmt: skip
    bars = [("train", done, 2000, 0.01) for done in range(0, 2001, 100)]
    bars += [("explain", done, 60, 5.0) for done in range(21)]
    at_s, before = 1.0, 0
    for name, done, total, each_s in bars:
        at_s += each_s * (done - before if done else 1)
        before = done
        took, left = divmod(round(each_s * done), 60), divmod(round(each_s * (total - done)), 60)
        times = "<".join(f"{a:02}:{b:02}" for a, b in (took, left))
        bar = (
            f"{name}: {100 * done // total:3}%|## | {done}/{total} [{times}, {1 / each_s:.2f}it/s]"
        )
        log += f"\r{bar}".encode()
        progress.read(at_s)
        seen.append(remaining.per_s)
    assert seen[20] == pytest.approx(100.0, rel=0.2)
    assert seen[-1] == pytest.approx(0.2, rel=0.2)


def test_a_run_like_one_before_changes_its_speed_as_that_did() -> None:
    took_s = [0.1] * 40 + [1.0] * 60
    before = list(accumulate(took_s, initial=2.0))[1:]
    course = Course.of([ProgressPoint(t_s, n, total=100) for n, t_s in enumerate(before, start=1)])
    log, remaining = bytearray(), RemainingTime()
    progress = LogProgress(
        lambda offset, _: LogChunk(bytes(log[offset:]), len(log), 0),
        FakeClock(), LogParser(), remaining, Redactor([]), lambda *_: None, _course=course,
    )  # fmt: skip
    for done in range(1, 31):
        log += f"step {done}/100: loss 0.5\n".encode()
        progress.read(before[done - 1])
    assert remaining.at(before[29]).remaining_s == pytest.approx(61.0, rel=0.1)


def test_a_clock_that_jumps_ten_days_ends_nothing() -> None:
    bench = Bench(TRAINING)
    jumped = []

    def jump(now: Watched) -> None:
        if bench.clock.monotonic_s() > 20 and not jumped:
            bench.clock.jump(10 * DAY_S)
            jumped.append(True)

    bench.site.keep_snapshot = jump  # type: ignore[method-assign]
    followed = bench.follow(max_runtime_s=150.0)
    assert jumped
    assert not followed.timed_out


def test_the_next_process_reads_the_log_again_and_keeps_each_point_once() -> None:
    bench = Bench(TRAINING)
    bench.clock.sleep(60.0)  # what the killed process saw is not known here
    bench.follow()
    assert [bench.site.kept[i].iteration for i in range(100)] == list(range(1, 101))


def follow_on_a_gpu(*others: GpuProcess, busy_frac: float | None) -> GpuUse:
    bench = Bench(TRAINING)
    bench.gpus = FakeGpus.idle(1)
    pids = bench.runtime.wait("run-1", 0.0).pids or (4711,)
    status = bench.runtime.wait

    def with_pids(name: str, timeout_s: float) -> ContainerStatus:
        return replace(status(name, timeout_s), pids=pids)

    bench.runtime.wait = with_pids  # type: ignore[method-assign]  # the fake runs no processes
    (gpu,) = bench.gpus.read()
    assert isinstance(gpu, GpuReading)
    on_it = (GpuProcess(pids[0], 5 * GIB), *others)
    bench.gpus.show(gpu.uuid, processes=on_it, utilisation_frac=busy_frac)
    use = bench.follow().gpu_use
    assert use is not None
    return use


FOREIGN = GpuProcess(pid=1, memory_bytes=30 * GIB)


def test_the_gpu_peak_is_the_containers_own() -> None:
    assert follow_on_a_gpu(FOREIGN, busy_frac=0.4).peak_bytes == 5 * GIB


def test_utilisation_is_measured_while_nobody_else_is_on_the_gpu() -> None:
    assert follow_on_a_gpu(busy_frac=0.4).utilisation_frac == pytest.approx(0.4)
    assert follow_on_a_gpu(FOREIGN, busy_frac=0.4).utilisation_frac is None
    assert follow_on_a_gpu(busy_frac=None).utilisation_frac is None


def test_a_run_that_ends_before_its_total_stopped_early() -> None:
    assert not Bench(TRAINING).follow().stopped_early
    early = Script(output=TRAINING.output[:60], runs_s=61.0)
    assert Bench(early).follow().stopped_early


def test_a_run_without_progress_is_said_to_stall() -> None:
    hangs = Script(output=TRAINING.output[:50], runs_s=200.0)
    bench = Bench(hangs)
    bench.follow()
    stalled = [
        seen.elapsed_s
        for seen in bench.listener.seen
        if seen.remaining is not None and seen.remaining.overdue
    ]
    assert 75.0 < min(stalled) < 100.0


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NONE = Findings()
WARNING = RunWarning(
    1, SilentFailure(Silent.GPU_UNUSED, "run", "GPU-0", 0.0, 0.02, "holds GPU-0"), NOON
)


def test_a_warning_is_told_from_its_beginning_and_begins_once() -> None:
    bench = Bench(TRAINING)
    checks: list[float] = []

    def check(elapsed_s: float, _: Usage) -> Findings:
        checks.append(elapsed_s)
        return Findings((WARNING,), (WARNING,) if len(checks) == 2 else ()) if checks[1:] else NONE

    bench.site.check = check  # type: ignore[method-assign]
    followed = bench.follow()
    assert followed.runtime_s == pytest.approx(101.0, abs=1.0)
    assert checks == pytest.approx([20.0, 40.0, 60.0, 80.0, 100.0], abs=2.0)
    told = [now for now in bench.listener.seen if now.warnings]
    assert [now.elapsed_s for now in bench.listener.seen if now.begun] == [told[0].elapsed_s]
    assert told[0].elapsed_s == checks[1]
    assert bench.listener.seen[-1].warnings == (WARNING,)


def test_what_the_policy_ends_is_stopped_once_in_its_grace_time() -> None:
    bench = Bench(TRAINING)
    bench.site.check = lambda *_: Findings((WARNING,), end=True)  # type: ignore[method-assign]
    followed = bench.follow()
    assert followed.runtime_s == pytest.approx(20.0, abs=2.0)
    assert followed.status.state is ContainerState.EXITED
    assert not followed.timed_out


def test_a_check_that_fails_changes_nothing() -> None:
    bench = Bench(TRAINING)

    def check(*_: object) -> Findings:
        raise LedgerUnreachable("db", "gone")

    bench.site.check = check  # type: ignore[method-assign]
    assert bench.follow().runtime_s == pytest.approx(101.0, abs=1.0)


def test_how_it_stands_is_kept_every_few_seconds_and_sooner_as_it_ends() -> None:
    bench = Bench(TRAINING)
    bench.follow()
    gaps = [later - at for at, later in pairwise(bench.site.snapshots)]
    assert max(gaps[:9]) == pytest.approx(5.0, abs=0.6)
    assert max(gaps[-9:]) < 2.0
    assert len(gaps) < 50


def test_a_cancellation_is_asked_for_now_and_then_and_stops_it_once() -> None:
    bench = Bench(TRAINING)
    asked: list[float] = []
    why = Exit(ExitKind.FAILED, None, "its disk is full")

    def cancellation(status: ContainerStatus) -> Exit | None:
        asked.append(bench.clock.monotonic_s())
        return why if asked[-1] > asked[0] + 9.0 else None

    bench.site.cancellation = cancellation  # type: ignore[method-assign]
    followed = bench.follow()
    assert followed.cancellation == why
    assert followed.runtime_s == pytest.approx(10.0, abs=2.0)
    assert len(asked) == pytest.approx(20, abs=1)
