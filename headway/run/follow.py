"""Follows one container: its log becomes progress, progress becomes remaining time."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from headway.clock import Clock
from headway.errors import EngineUnreachable, LedgerUnreachable, TelemetryError
from headway.estimate.remaining.model import RemainingEstimate, RemainingTime
from headway.ledger.series import MAX_POINTS
from headway.model.node import GpuReading
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, Prediction
from headway.model.run_warning import RunWarning
from headway.progress.parser import LogParser
from headway.runtime.outcome import classify_exit
from headway.runtime.port import ContainerState, ContainerStatus, Runtime, Usage
from headway.runtime.redact import Redactor
from headway.telemetry.port import GpuSensors
from headway.telemetry.reading import with_runs

_TICK_S = 0.25
_GPU_EVERY_S = 2.0
_HALT_EVERY_S = 2.0
_USAGE_EVERY_S = 0.5
"""The memory peak is put together from these looks; one costs 0.3 ms."""
_FEWEST_READINGS = 5
"""Of utilisation; a run of a few seconds has hardly begun."""
_STANDING_EVERY_S = 5.0
_TAIL_BYTES = 16_384
_STOP_TAKES_S = 60.0
"""At most, beside the grace time: the follower's tick, and an engine that has much to do."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look for silent failures found."""

    going_on: tuple[RunWarning, ...] = ()
    begun: tuple[RunWarning, ...] = ()
    """Those of them that began with this look."""
    end: bool = False
    """The site's policy ends the run for one of them; the ledger has which."""


@dataclass(frozen=True, slots=True)
class Watched:
    """How a run stands right now."""

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

    @property
    def done_frac(self) -> float | None:
        """Share of the iterations or epochs done; None where the log does not tell."""
        if self.point is None or not self.point.total:
            return None
        done = self.point.iteration if self.point.iteration is not None else self.point.epoch
        return None if done is None else max(0.0, min(done / self.point.total, 1.0))


class Listener(Protocol):
    """Who is told while a container runs; the flow shows it in the UI."""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        """A piece of the log as it came, and how much before it was given up."""
        ...

    def watched(self, now: Watched) -> None:
        """How the run stands; called a few times a second, to be thinned by the listener."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """What following a container to its end found."""

    status: ContainerStatus
    timed_out: bool
    runtime_s: float
    gpu_peak_bytes: int | None
    """Most that its processes held together of any one GPU; None without GPUs or readings."""
    log_tail: str
    halted: Exit | None = None
    """Why it was stopped from outside, if it was."""
    gpu_utilisation_frac: float | None = None
    """Mean of its GPUs over the readings in which only it was on them; None with too few."""
    stopped_early: bool = False
    """Whether it ended before the iterations or epochs that its log had promised."""
    gpu_peaks: Mapping[str, int] = field(default_factory=dict)
    """The same of each GPU by uuid."""
    last_gpus: tuple[GpuReading, ...] = ()
    """The newest reading of the node's GPUs while it ran."""
    held_gpus: bool = True
    """Without any, none of them ran out of memory."""

    def own_exit(self) -> Exit:
        """How the container ended by itself, whoever may have stopped it."""
        return classify_exit(
            self.status,
            timed_out=self.timed_out,
            log_tail=self.log_tail,
            gpus=self.held_gpus,
        )


class Follower:
    """Follows one container of this node until it has ended."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        listener: Listener,
        *,
        renew: Callable[[], None],
        record: Callable[[int, Sequence[ProgressPoint]], None],
        stand: Callable[[Watched], None],
        look: Callable[[float, Usage], Findings],
        gpus: GpuSensors | None,
        renew_every_s: float,
        look_every_s: float,
        halt: Callable[[], Exit | None] = lambda: None,
        secrets: Iterable[bytes] = (),
        strike: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up.

        Args:
            runtime: Where the container is.
            clock: Time and waiting.
            listener: Who is told.
            renew: Renews the lease; what it raises ends the following.
            record: Keeps progress points; the number says how many came before.
            stand: Keeps how the run stands, every few seconds.
            look: Looks for silent failures.
            gpus: Read for the GPU memory peak; None for a CPU job.
            renew_every_s: Seconds between renewals.
            look_every_s: Seconds between looks.
            halt: Asked every other second why the container has to stop; None while it may go on.
            secrets: Values that nobody may see in the log.
            strike: Strikes them out of the log's file, as often as it is read.
        """
        self._runtime = runtime
        self._clock = clock
        self._listener = listener
        self._renew = renew
        self._record = record
        self._stand = stand
        self._look = look
        self._gpus = gpus
        self._renew_every_s = renew_every_s
        self._halt = halt
        self._halted: Exit | None = None
        self._halt_asked_s = 0.0
        self._timed_out = False
        self._look_every_s = look_every_s
        self._redactor = Redactor(secrets)
        self._strike = strike
        self._offset = 0
        self._recorded = 0
        self._unsaved: list[ProgressPoint] = []
        self._tail: deque[bytes] = deque()
        self._point: ProgressPoint | None = None
        self._gpu_peaks: dict[str, int] = {}
        self._last_gpus: tuple[GpuReading, ...] = ()
        self._busy: list[float] = []
        self._usage = Usage()
        self._findings = Findings()
        self._next_standing = self._next_look = 0.0

    def follow(
        self,
        name: str,
        *,
        prediction: Prediction,
        epochs: int | None,
        progress_pattern: str | None = None,
        max_runtime_s: float | None,
        grace_s: float,
    ) -> Followed:
        """Follow container *name* to its end.

        The log is read from its start, also by a process that takes over:
        points are numbered, so none is kept twice.

        Raises:
            LeaseLost: From *renew*; the container still runs.
            ContainerMissing: It was removed by somebody else.
        """
        parser = LogParser(progress_pattern, epochs=epochs)
        remaining = RemainingTime()
        if (told := prediction.told) is not None:  # what is but a guess tells no remaining time
            remaining = RemainingTime(told.median_s, told.low_s, told.high_s)
        status = self._runtime.wait(name, 0.0)
        # The wall clock is asked once; from here on only the monotonic one counts,
        # so that a clock that jumps by days ends no job.
        started = self._clock.monotonic_s()
        if status.started_at is not None:
            age_s = (self._clock.now() - status.started_at).total_seconds()
            started -= max(age_s, 0.0)
        next_renewal = self._clock.monotonic_s()
        next_gpu = next_usage = next_renewal
        self._next_standing, self._next_look = next_renewal, next_renewal + self._look_every_s
        stopping = False
        while True:
            now = self._clock.monotonic_s()
            elapsed_s = now - started
            if now >= next_renewal and self._tolerated(self._renew):
                next_renewal = now + self._renew_every_s
            if now >= next_gpu:
                self._read_gpus(status)
                next_gpu = now + _GPU_EVERY_S
            if now >= next_usage:
                self._tolerated(partial(self._read_usage, name))
                next_usage = now + _USAGE_EVERY_S
            self._tolerated(partial(self._read_log, name, parser, remaining, elapsed_s))
            self._tell(elapsed_s, remaining.at(elapsed_s))
            if status.state is ContainerState.EXITED:
                break
            if not stopping and self._must_stop(elapsed_s, max_runtime_s):
                stopping = True
                self._runtime.stop(name, grace_s)
            try:
                status = self._runtime.wait(name, _TICK_S)
            except EngineUnreachable:
                # The container goes on without its engine; so do we.
                self._clock.sleep(_TICK_S)
        self._read_log(name, parser, remaining, elapsed_s, last=True)
        return Followed(
            status=status,
            timed_out=self._timed_out or _ran_out_of_time(status, max_runtime_s, grace_s),
            runtime_s=_runtime_s(status, elapsed_s),
            gpu_peak_bytes=max(self._gpu_peaks.values(), default=None),
            gpu_peaks=self._gpu_peaks,
            last_gpus=self._last_gpus,
            held_gpus=self._gpus is not None,
            halted=self._halted,
            gpu_utilisation_frac=sum(self._busy) / len(self._busy)
            if len(self._busy) >= _FEWEST_READINGS
            else None,
            stopped_early=remaining.ended_early,
            log_tail=b"".join(self._tail)[-_TAIL_BYTES:].decode(errors="replace"),
        )

    def _tell(self, elapsed_s: float, left: RemainingEstimate) -> None:
        """Look for what goes wrong, and say how the run stands."""
        now = self._clock.monotonic_s()
        self._findings = replace(self._findings, begun=())
        if now >= self._next_look:
            self._tolerated(partial(self._look_once, elapsed_s))
            self._next_look = now + self._look_every_s
        found = self._findings
        watched = Watched(elapsed_s, self._point, left, self._usage, found.going_on, found.begun)
        if now >= self._next_standing and self._tolerated(partial(self._stand, watched)):
            self._next_standing = now + _STANDING_EVERY_S
        self._listener.watched(watched)

    def _look_once(self, elapsed_s: float) -> None:
        self._findings = self._look(elapsed_s, self._usage)

    def _tolerated(self, step: Callable[[], object]) -> bool:
        """Run *step*; False when the database or the engine was away: the run goes on."""
        try:
            step()
        except (LedgerUnreachable, EngineUnreachable):
            return False
        return True

    def _read_log(
        self,
        name: str,
        parser: LogParser,
        remaining: RemainingTime,
        elapsed_s: float,
        *,
        last: bool = False,
    ) -> None:
        """Read what is new and keep its points; those before that could not be kept, too."""
        while True:
            chunk = self._runtime.read_log(name, self._offset)
            if not chunk.data and not chunk.skipped_bytes:
                break
            self._offset = chunk.next_offset
            held = self._redactor.rest() if chunk.skipped_bytes else b""
            data = held + self._redactor.feed(chunk.data)
            self._take(data, chunk.skipped_bytes, parser, remaining, elapsed_s)
        if last:
            self._take(self._redactor.rest(), 0, parser, remaining, elapsed_s)
        self._strike()
        if self._unsaved:
            self._record(self._recorded, self._unsaved)
            self._recorded += len(self._unsaved)
            self._unsaved = []

    def _take(
        self,
        data: bytes,
        skipped_bytes: int,
        parser: LogParser,
        remaining: RemainingTime,
        elapsed_s: float,
    ) -> None:
        """Pass on a piece of the log, and take progress from it."""
        if not data and not skipped_bytes:
            return
        self._listener.lines(data, skipped_bytes)
        self._tail.append(data[-_TAIL_BYTES:])
        while len(self._tail) > 4:
            self._tail.popleft()
        points = parser.feed(data, elapsed_s)
        if not points:
            return
        self._point = points[-1]
        for point in points:
            done = point.iteration if point.iteration is not None else point.epoch
            if done is not None:
                epoch = None if point.iteration is None else point.epoch
                remaining.update(point.t_s, done, point.total, epoch=epoch)
        self._unsaved += points
        # All that come later replace the newest one there.
        del self._unsaved[MAX_POINTS - 1 : -1]

    def _must_stop(self, elapsed_s: float, max_runtime_s: float | None) -> bool:
        self._timed_out = max_runtime_s is not None and elapsed_s >= max_runtime_s
        if elapsed_s >= self._halt_asked_s + _HALT_EVERY_S:
            self._halt_asked_s = elapsed_s
            self._tolerated(self._ask_whether_to_halt)
        return self._timed_out or self._halted is not None or self._findings.end

    def _ask_whether_to_halt(self) -> None:
        self._halted = self._halt()

    def _read_usage(self, name: str) -> None:
        self._usage = self._runtime.usage(name)

    def _read_gpus(self, status: ContainerStatus) -> None:
        if self._gpus is None or not status.pids:
            return
        try:
            readings = self._gpus.read()
        except TelemetryError:
            return  # the node's worker reports it; a peak is never guessed
        mine = set(status.pids)
        # NVML does not say whose kernels run: only a GPU that it has alone tells of it.
        self._busy += [
            gpu.utilisation_frac
            for gpu in readings
            if gpu.utilisation_frac is not None
            and gpu.processes
            and mine.issuperset(process.pid for process in gpu.processes)
        ]
        run_of_pid = dict.fromkeys(mine, status.run_id)
        self._last_gpus = tuple(with_runs(gpu, run_of_pid) for gpu in readings)
        for gpu in readings:
            held = [
                each.memory_bytes
                for each in gpu.processes
                if each.pid in mine and each.memory_bytes is not None
            ]
            if held:
                self._gpu_peaks[gpu.uuid] = max(self._gpu_peaks.get(gpu.uuid, 0), sum(held))


def _ran_out_of_time(status: ContainerStatus, max_runtime_s: float | None, grace_s: float) -> bool:
    """Whether a flow process that has died since stopped it at its time limit.

    Only an end soon after the limit tells: what the engine notes as the end of a
    container that its node took along is the moment when both were back.
    """
    if max_runtime_s is None or status.started_at is None or status.ended_at is None:
        return False
    over_s = (status.ended_at - status.started_at).total_seconds() - max_runtime_s
    ended_itself = status.exit_code == 0 or status.oom_killed
    return not ended_itself and 0 <= over_s <= grace_s + _STOP_TAKES_S


def _runtime_s(status: ContainerStatus, watched_s: float) -> float:
    if status.started_at is None or status.ended_at is None:
        return watched_s
    return max((status.ended_at - status.started_at).total_seconds(), 0.0)
