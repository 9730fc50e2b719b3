"""Follows one container to its end: its log is read, its use measured.

Its lease is renewed by the node's guard. Whether it is lost, the ledger says to
whatever is written.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

from headway.clock import Clock
from headway.errors import LedgerUnreachable
from headway.estimate.remaining.remaining_time import RemainingEstimate, RemainingTime
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, Prediction
from headway.model.run_warning import RunWarning
from headway.progress.parser import LogParser
from headway.run.ahead import Ahead
from headway.run.followed import Followed, GpuUse, ran_out_of_time
from headway.run.log_progress import LogProgress
from headway.run.written_progress import WrittenProgress
from headway.runtime.errors import EngineUnreachable
from headway.runtime.port import ContainerState, ContainerStatus, Runtime, Usage
from headway.runtime.redact import Redactor
from headway.telemetry.port import GpuSensors

_TICK_S = 0.25
_READER_S = 0.25
"""So long the limits wait for who reads the log: usually that is enough, and all is in step."""
GPU_EVERY_S = 2.0
_CANCELLATION_EVERY_S = 0.5
_PASS_ON_EVERY_S = 0.5
_USAGE_EVERY_S = 0.5
"""The memory peak is put together from these readings; one costs 0.3 ms."""
_SNAPSHOT_EVERY_S, _SNAPSHOT_SHARE = 5.0, 0.1
"""The rest is told anew so often, and in so many parts of what is left."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check for silent failures found."""

    going_on: tuple[RunWarning, ...] = ()
    begun: tuple[RunWarning, ...] = ()
    """Those of them that began with this check."""
    end: bool = False
    """The site's policy ends the run for one of them; the ledger has which."""


@dataclass(frozen=True, slots=True)
class Watched:
    """How far a run is right now."""

    elapsed_s: float
    point: ProgressPoint | None
    """The newest point; None before the first."""
    remaining: RemainingEstimate | None
    """None while neither the prior nor the log says anything."""
    usage: Usage = field(default_factory=Usage)
    """Memory and processor time of the container, at most some seconds old."""
    warnings: tuple[RunWarning, ...] = ()
    """Silent failures that go on."""
    begun: tuple[RunWarning, ...] = ()
    """Those that began since it was last told; each is in one `Watched` only."""
    phase: str = ""
    """What it does before its program starts; empty once that runs."""
    per_s: float | None = None
    """Iterations a second, or epochs where no iterations are known."""

    @property
    def done_frac(self) -> float | None:
        """Share of the iterations or epochs done; None where the log does not tell."""
        if self.point is None or not self.point.total:
            return None
        done = self.point.iteration if self.point.iteration is not None else self.point.epoch
        return None if done is None else max(0.0, min(done / self.point.total, 1.0))


def remaining_of(
    said: Prediction, *, is_resumed: bool, after: NormalDist | None = None
) -> RemainingTime:
    """The remaining time of an attempt that begins now; what is but a guess tells none."""
    told = said.told
    prior = (told.median_s, told.low_s, told.high_s) if told else ()
    return RemainingTime(*prior, is_resumed=is_resumed, after=after)


class Listener(Protocol):
    """Who is told while a container runs; the flow shows it in the UI."""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        """A piece of the log as it came, and how much before it was passed over."""

    def watched(self, now: Watched) -> None:
        """How far the run is; called a few times a second, to be thinned by the listener."""


class Upkeep(Protocol):
    """What the site does for a container while it runs.

    Whatever raises `LedgerUnreachable` or `EngineUnreachable` is done again
    soon: the container goes on without them. Any other error ends the following.
    """

    def keep_points(self, before: int, points: Sequence[ProgressPoint]) -> None:
        """Keep progress points; *before* says how many came before them."""

    def keep_snapshot(self, now: Watched) -> None:
        """Keep how far the run is."""

    def check(self, elapsed_s: float, usage: Usage) -> Findings:
        """Look for silent failures."""

    def cancellation(self, status: ContainerStatus) -> Exit | None:
        """Why the container has to stop; None while it may go on."""

    def pass_on(self) -> None:
        """Pass on what parts of its gang ask each other to run."""

    def redact(self) -> None:
        """Take the secrets out of the log's file."""


@dataclass(slots=True)
class _Periodic:
    """Something that is done again and again."""

    step: Callable[[], None]
    every_s: float
    next_s: float = 0.0

    def run(self, now_s: float) -> None:
        """Do it if its time has come; again at once where the database or the engine was away."""
        if now_s >= self.next_s and tolerated(self.step):
            self.next_s = now_s + self.every_s


def tolerated(step: Callable[[], None]) -> bool:
    """Run *step*; False when the database or the engine was away: the run goes on."""
    try:
        step()
    except (LedgerUnreachable, EngineUnreachable):
        return False
    return True


@dataclass(kw_only=True)
class Follower:
    """Follows one container of this node until it has ended.

    Its limits, and whether it has to stop, are looked at by the thread that calls `follow`. A
    second one reads its log and tells of it: neither a flood of output, nor a ledger or a listener
    that takes long, has the limits wait.
    """

    runtime: Runtime
    clock: Clock
    name: str
    """The container's."""
    listener: Listener
    upkeep: Upkeep
    gpus: GpuSensors | None
    """Read for its GPU memory peak; None for a CPU job."""
    granted: Collection[str]
    """Uuids of the GPUs that it was granted."""
    prediction: Prediction
    """What was said before its start."""
    ahead: Ahead
    is_resumed: bool = False
    """An earlier attempt may have done part of that."""
    progress_pattern: str | None = None
    """The job's own pattern of progress in the log."""
    max_runtime_s: float | None
    """After so long it is stopped; None for no limit."""
    grace_s: float
    """So long it may take to stop."""
    check_every_s: float
    """Between checks for silent failures."""
    secrets: Iterable[bytes] = ()
    """Values that nobody may see in the log."""
    log_from: int = 0
    """Where in the log to begin, in bytes."""
    writes_in: Sequence[tuple[Path, str]] = ()
    """Folders in which its program may write its progress: what each is in, and its name there."""

    def __post_init__(self) -> None:
        self._remaining = remaining_of(
            self.prediction, is_resumed=self.is_resumed, after=self.ahead.after_count
        )
        self._status = self.runtime.wait(self.name, 0.0)
        self._log = LogProgress(
            partial(self.runtime.read_log, self.name),
            self.clock,
            LogParser(
                self.progress_pattern, **self.ahead.totals._asdict(), is_resumed=self.is_resumed
            ),
            self._remaining,
            Redactor(self.secrets),
            self.listener.lines,
            self._written(),
            self.ahead.iterations,
            self.ahead.epochs,
            self.ahead.course,
            _offset=self.log_from,
        )
        self._gpu_use = GpuUse() if self.gpus is not None else None
        self._elapsed_s = 0.0
        self._usage = Usage()
        self._findings = Findings()
        self._cancellation: Exit | None = None
        self._timed_out = False
        # The wall clock is asked once; from here on only the monotonic one counts,
        # so that a clock that jumps by days ends no job.
        now_s = self.clock.monotonic_s()
        age_s = 0.0
        if self._status.started_at is not None:
            age_s = (self.clock.now() - self._status.started_at).total_seconds()
        self._started_s = now_s - max(age_s, 0.0)
        self._measure = (
            _Periodic(self._read_gpus, GPU_EVERY_S),
            _Periodic(self._read_usage, _USAGE_EVERY_S),
        )
        self._pass_on = _Periodic(self.upkeep.pass_on, _PASS_ON_EVERY_S)
        self._check = _Periodic(self._check_once, self.check_every_s, now_s + self.check_every_s)
        self._snapshot = _Periodic(self._keep_snapshot, _SNAPSHOT_EVERY_S)
        self._cancel = _Periodic(
            self._ask_whether_to_cancel,
            _CANCELLATION_EVERY_S,
            self._started_s + _CANCELLATION_EVERY_S,
        )

    def _written(self) -> WrittenProgress | None:
        since = self._status.started_at
        if since is None or not self.writes_in:
            return None
        return WrittenProgress(self.writes_in, self.clock, since, *self.ahead.totals[:2])

    def follow(self) -> Followed:
        """Follow the container to its end.

        Raises:
            LeaseLost: Another attempt has the run; the container still runs.
            ContainerMissing: It was removed by somebody else.
        """
        with ThreadPoolExecutor(2) as beside:
            self._follow(beside)
        self._read_log(last=True)
        return self._followed()

    def _follow(self, beside: ThreadPoolExecutor) -> None:
        context = copy_context()
        reading: Future[None] | None = None
        stopping: Future[None] | None = None
        while True:
            now_s = self.clock.monotonic_s()
            self._elapsed_s = now_s - self._started_s
            for periodic in self._measure:
                periodic.run(now_s)
            reading = reading or beside.submit(context.run, self._read_and_tell)
            ended = self._status.state is ContainerState.EXITED
            if wait((reading,), None if ended else _READER_S).done:
                reading.result()
                reading = None
            if ended:
                return
            # Also in its grace time: it goes on writing.
            if self._must_stop(now_s) and stopping is None:
                stopping = beside.submit(self.runtime.stop, self.name, self.grace_s)
            if stopping is not None and wait((stopping,), _READER_S).done:
                stopping.result()
            try:
                self._status = self.runtime.wait(self.name, _TICK_S)
            except EngineUnreachable:
                # The container goes on without its engine; so do we.
                self.clock.sleep(_TICK_S)

    def _read_and_tell(self) -> None:
        now_s = self._started_s + self._elapsed_s
        self._pass_on.run(now_s)
        tolerated(self._read_log)
        self._tell(now_s)

    def _followed(self) -> Followed:
        status = self._status
        lasted_s = self._elapsed_s
        if status.started_at is not None and status.ended_at is not None:
            lasted_s = max((status.ended_at - status.started_at).total_seconds(), 0.0)
        return Followed(
            status=status,
            timed_out=self._timed_out
            or ran_out_of_time(status, self.max_runtime_s, self.grace_s, self._elapsed_s),
            runtime_s=lasted_s,
            log_tail=self._log.tail,
            gpu_use=self._gpu_use,
            cancellation=self._cancellation,
            stopped_early=self._remaining.ended_early,
        )

    def _read_log(self, *, last: bool = False) -> None:
        self._log.read(self._elapsed_s, last=last)
        self.upkeep.redact()
        self._log.keep(self.upkeep.keep_points)

    def _read_usage(self) -> None:
        self._usage = self.runtime.usage(self.name)

    def _read_gpus(self) -> None:
        if self.gpus is not None and self._gpu_use is not None:
            self._gpu_use.read(self.gpus, self._status, self.granted)

    def _tell(self, now_s: float) -> None:
        """Check for what goes wrong, and say how far the run is."""
        self._findings = replace(self._findings, begun=())
        self._check.run(now_s)
        self._snapshot.run(now_s)
        self.listener.watched(self._watched())

    def _keep_snapshot(self) -> None:
        now = self._watched()
        self.upkeep.keep_snapshot(now)
        high_s = now.remaining.high_s if now.remaining else None
        share_s = _SNAPSHOT_EVERY_S if high_s is None else _SNAPSHOT_SHARE * high_s
        self._snapshot.every_s = min(max(share_s, _USAGE_EVERY_S), _SNAPSHOT_EVERY_S)

    def _check_once(self) -> None:
        self._findings = self.upkeep.check(self._elapsed_s, self._usage)

    def _watched(self) -> Watched:
        found, left = self._findings, self._remaining.at(self._elapsed_s)
        return Watched(
            self._elapsed_s,
            self._log.point,
            left,
            self._usage,
            found.going_on,
            found.begun,
            self._log.phase,
            self._remaining.per_s,
        )

    def _must_stop(self, now_s: float) -> bool:
        limit_s = self.max_runtime_s
        self._timed_out |= limit_s is not None and self._elapsed_s >= limit_s
        self._cancel.run(now_s)
        return self._timed_out or self._cancellation is not None or self._findings.end

    def _ask_whether_to_cancel(self) -> None:
        found = self.upkeep.cancellation(self._status)
        self._cancellation = self._cancellation or found
