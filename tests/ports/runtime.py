"""A runtime in memory. Programs are scripts on the injected clock; nothing is started."""

import enum
import os
import queue
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from headway.clock import Clock
from headway.model.container_policy import ContainerPolicy, GangNetwork
from headway.model.exec_messages import ExecCommand, StandardStream, StreamData, WindowSize
from headway.runtime.errors import (
    ContainerExists,
    ContainerMissing,
    EngineUnreachable,
    ImageMissing,
    RuntimeFailure,
)
from headway.runtime.logfile import LogChunk
from headway.runtime.port import (
    BindMount,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    RuntimeKind,
    Usage,
)
from headway.runtime.rules import check_spec, real_source


@dataclass(frozen=True, slots=True)
class CommandScript:
    """What a command does."""

    output: bytes = b""
    error: bytes = b""
    exit_code: int = 0
    reads: bool = False
    """Prints its input, and ends with it."""
    stays: bool = False
    """Does not end before it is killed."""


class FakeExecution:
    """One command that follows its script."""

    def __init__(self, script: CommandScript) -> None:
        """It has printed already what it prints by itself."""
        self._script = script
        self._pieces: queue.SimpleQueue[StreamData | None] = queue.SimpleQueue()
        self._code: int | None = None
        self.windows: list[WindowSize] = []
        for stream, data in (
            (StandardStream.OUTPUT, script.output),
            (StandardStream.ERROR, script.error),
        ):
            if data:
                self._pieces.put(StreamData(stream, data))
        if not script.reads and not script.stays:
            self._end(script.exit_code)

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._pieces.put(None)

    def read(self) -> StreamData | None:
        """Wait for the next bytes; None at the end."""
        piece = self._pieces.get()
        if piece is None:
            self._pieces.put(None)  # for whoever asks again
        return piece

    def write(self, data: bytes) -> None:
        """Print it again, if it reads."""
        if self._script.reads and self._code is None:
            self._pieces.put(StreamData(StandardStream.OUTPUT, data))

    def end_input(self) -> None:
        """End, if it reads."""
        if self._script.reads:
            self._end(self._script.exit_code)

    def resize(self, window: WindowSize) -> None:
        """Note it."""
        self.windows.append(window)

    def exit_code(self) -> int | None:
        """How it ended; None until then."""
        return self._code

    def close(self) -> None:
        """Kill it."""
        self._end(_KILLED)


_POLL_S = 0.01
_KILLED = 137
_ADDRESS = "192.0.2.7"


class OnTerm(enum.StrEnum):
    """What a scripted program does when it is asked to stop."""

    ENDS = "ends"
    IGNORES = "ignores"


@dataclass(frozen=True, slots=True)
class Script:
    """What a program does, from its start on."""

    output: tuple[tuple[float, bytes], ...] = ()
    """(seconds after the start, what is printed then), in order."""
    runs_s: float = 0.0
    exit_code: int = 0
    oom_killed: bool = False
    on_term: OnTerm = OnTerm.ENDS
    term_code: int = 143
    """Exit code after a SIGTERM that is obeyed."""
    usage: Usage = field(default_factory=lambda: Usage(host_peak_bytes=1 << 20, cpu_s=0.0))


@dataclass(slots=True)
class _Container:
    site: str
    spec: ContainerSpec
    started_at: datetime | None = None
    killed_at: datetime | None = None
    killed_code: int = _KILLED
    given_up_bytes: int = 0
    executions: list[FakeExecution] = field(default_factory=list)


@dataclass(slots=True)
class FakeMachine:
    """What several `FakeRuntime`s share: the machine with its containers.

    Attributes:
        scripts: What each command does; a command that is not here does `default`.
        missing_images: Images that are not here and cannot be pulled.
        start_errors: Container name → why the engine refuses to start it.
        answers: Cleared while the engine does not answer.
        commands: What each command beside a program does.
        unguarded: Why containers cannot be kept from the node; empty when they are.
    """

    scripts: dict[tuple[str, ...], Script] = field(default_factory=dict)
    default: Script = field(default_factory=Script)
    missing_images: set[str] = field(default_factory=set)
    start_errors: dict[str, str] = field(default_factory=dict)
    answers: threading.Event = field(default_factory=threading.Event)
    containers: dict[str, _Container] = field(default_factory=dict)
    unguarded: str = ""
    commands: dict[tuple[str, ...], CommandScript] = field(default_factory=dict)
    gpu_groups: Path | None = None
    """Where its control groups of version 2 are; None where it has none."""

    def __post_init__(self) -> None:
        self.answers.set()


class FakeRuntime:
    """Passes the runtime contract without an engine.

    Args:
        site: As for the Docker runtime.
        policy: What containers may do.
        clock: Drives the scripts; a wait sleeps on it.
        machine: Shared by runtimes that look at the same containers.
    """

    kind = RuntimeKind.DOCKER

    def __init__(
        self, site: str, policy: ContainerPolicy, clock: Clock, machine: FakeMachine
    ) -> None:
        self.machine = machine
        self._site = site
        self._policy = policy
        self._clock = clock

    def weaknesses(self) -> tuple[str, ...]:
        """It enforces nothing."""
        return ("This is a fake: nothing is started and nothing is limited.",)

    def path_in_container(self, mount: BindMount) -> str:
        """The mount's target."""
        return mount.target

    def guard_network(self) -> str:
        """What the machine's `unguarded` says."""
        self._check_answers()
        return self.machine.unguarded

    def ensure_image(self, image: str) -> str:
        """The image's name. Raises `ImageMissing` for the machine's `missing_images`."""
        self._check_answers()
        if image in self.machine.missing_images:
            raise ImageMissing(image, "no such image")
        return image

    def why_no_image(self, image: str) -> str:
        """As `ensure_image` would say."""
        return "no such image" if image in self.machine.missing_images else ""

    def pythons(self, named: Mapping[str, str]) -> Mapping[str, str]:
        """Those of *named* that the machine does not miss."""
        missing = self.machine.missing_images
        return {key: image for key, image in named.items() if image not in missing}

    def create(self, spec: ContainerSpec) -> None:
        """Create, do not start. Raises `ContainerExists`, `ImageMissing`, `PolicyViolation`."""
        check_spec(spec, self._policy)
        for mount in spec.mounts:
            real_source(mount, self._policy.mount_roots)
        self.ensure_image(spec.image)
        self._check_answers()
        made = _Container(self._site, spec)
        if self.machine.containers.setdefault(spec.name, made) is not made:
            raise ContainerExists(spec.name)

    def gpu_group(self, name: str) -> Path | None:
        """Its folder below the machine's `gpu_groups`."""
        return None if self.machine.gpu_groups is None else self.machine.gpu_groups / name

    def start(self, name: str) -> None:
        """Start a created container; one that runs or ran is left as it is."""
        container = self._get(name)
        if name in self.machine.start_errors:
            why = self.machine.start_errors[name]
            raise RuntimeFailure(f"container {name} could not be started: {why}")
        if container.started_at is None:
            container.started_at = self._clock.now()

    def inspect(self, name: str) -> ContainerStatus | None:
        """The container's status; None when it does not exist."""
        container = self._find(name)
        return None if container is None else self._status(container)

    def _status(self, container: _Container) -> ContainerStatus:
        spec, script = container.spec, self._script(container)
        state, code, ended_at = ContainerState.CREATED, None, self._end(container)
        if ended_at is not None:
            state = ContainerState.EXITED
            code = container.killed_code if container.killed_at else script.exit_code
        elif container.started_at is not None:
            state = ContainerState.RUNNING
        running = state is ContainerState.RUNNING
        return ContainerStatus(
            name=spec.name,
            run_id=spec.run_id,
            attempt=spec.attempt,
            state=state,
            exit_code=code,
            oom_killed=script.oom_killed and state is ContainerState.EXITED,
            started_at=container.started_at,
            ended_at=ended_at,
            pids=(os.getpid(),) if running else (),
            address=_ADDRESS if running and isinstance(spec.network, GangNetwork) else "",
            error=self.machine.start_errors.get(spec.name, ""),
        )

    def _end(self, container: _Container) -> datetime | None:
        if container.killed_at is not None or container.started_at is None:
            return container.killed_at
        end = container.started_at + timedelta(seconds=self._script(container).runs_s)
        return end if end <= self._clock.now() else None

    def containers(self) -> list[ContainerStatus]:
        """Every container of this site, whatever its state."""
        self._check_answers()
        own = [c for c in tuple(self.machine.containers.values()) if c.site == self._site]
        return [self._status(container) for container in own]

    def wait(self, name: str, timeout_s: float) -> ContainerStatus:
        """Wait up to *timeout_s* for the end; the status then. Raises `ContainerMissing`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            status = self._status(self._get(name))
            left_s = deadline_s - self._clock.monotonic_s()
            if status.state is ContainerState.EXITED or left_s <= 0:
                return status
            self._clock.sleep(min(_POLL_S, left_s))

    def stop(self, name: str, grace_s: float) -> None:
        """As SIGTERM and SIGKILL would; sleeps the grace time if the script ignores SIGTERM."""
        status = self.inspect(name)
        if status is None or status.state is not ContainerState.RUNNING:
            return
        script = self._script(self._get(name))
        if script.on_term is OnTerm.IGNORES:
            status = self.wait(name, grace_s)
        self._check_answers()
        container = self.machine.containers.get(name)
        if container is None or status.state is ContainerState.EXITED:
            return
        if script.on_term is OnTerm.ENDS:
            container.killed_code = script.term_code
        container.killed_at = self._clock.now()
        for execution in container.executions:
            execution.close()

    def limit_memory(self, name: str, host_memory_bytes: int) -> None:
        """Note the limit in its specification."""
        container = self._get(name)
        container.spec = replace(container.spec, host_memory_bytes=host_memory_bytes)

    def remove(self, name: str) -> None:
        """Remove. Idempotent."""
        if self._find(name) is not None:
            self.machine.containers.pop(name, None)

    def usage(self, name: str) -> Usage:
        """What its script says."""
        self._check_answers()
        container = self.machine.containers.get(name)
        if container is None or container.started_at is None:
            return Usage()
        return self._script(container).usage

    def serves(self, name: str, port: int) -> bool:
        """Whether it runs, and was created with the port."""
        container = self._find(name)
        if container is None or port not in container.spec.ports.values():
            return False
        return self._status(container).state is ContainerState.RUNNING

    def execute(self, name: str, command: ExecCommand) -> FakeExecution:
        """What the machine's `commands` say; a command that is not there does nothing."""
        if self._status(self._get(name)).state is not ContainerState.RUNNING:
            raise RuntimeFailure(f"container {name} does not run")
        execution = FakeExecution(self.machine.commands.get(command.arguments, CommandScript()))
        self._get(name).executions.append(execution)
        return execution

    def frozen(self, name: str) -> AbstractContextManager[bool]:
        """It cannot be had."""
        return nullcontext(False)

    def own_folders(self, name: str) -> tuple[Path, ...]:
        """None: nothing is written."""
        return ()

    def read_log(self, name: str, offset: int, limit_bytes: int = 1 << 20) -> LogChunk:
        """At most *limit_bytes* of the log from *offset*. Raises `ContainerMissing`."""
        container = self._get(name)
        log = self._log(container)
        start = min(max(offset, container.given_up_bytes), len(log))
        data = log[start : start + limit_bytes]
        return LogChunk(data, start + len(data), start - offset)

    def _log(self, container: _Container) -> bytes:
        """What was printed until now, or until the end."""
        if container.started_at is None:
            return b""
        until = self._end(container) or self._clock.now()
        lived_s = (until - container.started_at).total_seconds()
        return b"".join(text for at_s, text in self._script(container).output if at_s <= lived_s)

    def trim_logs(self) -> None:
        """Give up the oldest part of every log that is over its limit."""
        self._check_answers()
        for container in tuple(self.machine.containers.values()):
            beyond = len(self._log(container)) - container.spec.log_limit_bytes
            container.given_up_bytes = max(container.given_up_bytes, beyond)

    def sweep(self) -> None:
        """Nothing is left behind here."""

    def _get(self, name: str) -> _Container:
        container = self._find(name)
        if container is None:
            raise ContainerMissing(name)
        return container

    def _find(self, name: str) -> _Container | None:
        self._check_answers()
        container = self.machine.containers.get(name)
        return container if container is not None and container.site == self._site else None

    def _script(self, container: _Container) -> Script:
        return self.machine.scripts.get(container.spec.command, self.machine.default)

    def _check_answers(self) -> None:
        if not self.machine.answers.is_set():
            raise EngineUnreachable("answer", "the fake was told not to answer")
