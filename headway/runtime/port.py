"""The runtime port: what headway asks of whatever runs containers.

Two adapters exist, `docker.containers.DockerRuntime` and `process.programs.ProcessRuntime`; the
fake is `tests.ports.runtime.FakeRuntime`. All three pass `RuntimeContract` in
`tests.ports.runtime_contract`, and the two that start commands beside programs
`ExecutionContract` there.
"""

import enum
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from headway.model.container_policy import GangNetwork, NetworkMode
from headway.model.exec_messages import ExecCommand, StreamData, WindowSize
from headway.runtime.logfile import LogChunk


class RuntimeKind(enum.StrEnum):
    """Which adapter ran a container."""

    DOCKER = "docker"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class BindMount:
    """A directory of the host inside the container. The source must exist."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything that is passed to the engine; nothing else ever is."""

    name: str
    """Unique on the node: run and attempt. The engine refuses a second one."""
    run_id: str
    attempt: int
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    """Validated keys and values; never logged."""
    mounts: tuple[BindMount, ...]
    log_path: Path
    """File on the host that gets stdout and stderr, in order, appended."""
    host_memory_bytes: int
    """Hard limit; memory and swap together."""
    cpus: float
    shm_bytes: int
    pids: int = 4096
    gpu_uuids: tuple[str, ...] = ()
    """GPUs made visible; empty makes all of them invisible."""
    near_cpus: frozenset[int] = frozenset()
    """Logical CPUs that are nearest to these; it gets no others where that can be. Empty: any."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """The port of the host's loopback address on which each of the program's is published."""
    network: NetworkMode | GangNetwork | None = None
    """Other than the policy's, which may still forbid it; None for the policy's."""
    user: str = ""
    """``uid:gid``; empty for the owner of headway's own process."""
    wrapper: tuple[str, ...] = ()
    """Words before the command."""
    log_limit_bytes: int = 256 * 1024 * 1024
    """Bytes of log kept on disk; beyond it the oldest part is given up, and this is said."""
    working_dir: str = ""
    """Where the program starts, as it finds it there; empty for the image's own place."""
    disk_bytes: int | None = None
    """What it may write outside its mounts, where the engine can limit that; None: no limit."""


class ContainerState(enum.StrEnum):
    """What a container is doing."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """One container as its runtime sees it."""

    name: str
    run_id: str
    attempt: int
    state: ContainerState
    exit_code: int | None = None
    """None while it runs, and when it was ended by an engine that did not note it."""
    oom_killed: bool = False
    """The main process or a child was killed at the memory limit."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    pids: tuple[int, ...] = ()
    """Host process ids, while it runs: maps NVML's processes to runs."""
    address: str = ""
    """By which its gang reaches it on a `GangNetwork`, while it runs; else empty."""
    error: str = ""
    """The engine's own words, when it could not start the container."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources one container used. None: this runtime cannot tell."""

    host_peak_bytes: int | None = None
    """Most held at once of what the kernel cannot take back: what a limit must leave room for.
    Page cache is not part of it, files in shared memory are."""
    host_cache_bytes: int | None = None
    """Most page cache beside it, which shrinks when memory is short; where the cgroup tells."""
    host_used_bytes: int | None = None
    """Held now, without page cache."""
    cpu_s: float | None = None


class Execution(Protocol):
    """One command, in the place of its container's program and as its user. Synchronous.

    One thread reads and another one writes; any may close it.
    """

    def read(self) -> StreamData | None:
        """Wait for the next bytes of output or error; None at the end of both."""

    def write(self, data: bytes) -> None:
        """Give it *data* as input; nothing happens where it reads no more."""

    def end_input(self) -> None:
        """Let it find the end of its input."""

    def resize(self, window: WindowSize) -> None:
        """Tell its terminal how large it is now; nothing happens without one."""

    def exit_code(self) -> int | None:
        """How it ended; None while it runs. Raises `RuntimeFailure` where nobody can say."""

    def close(self) -> None:
        """Kill it, with all that it has started, where that still runs; `read` ends."""


class Runtime(Protocol):
    """Starts, watches and removes containers on this node. Synchronous.

    Every method raises `EngineUnreachable` when the engine does not answer
    within its time-out, and may then be called again.
    """

    kind: RuntimeKind

    def weaknesses(self) -> tuple[str, ...]:
        """What this runtime cannot enforce here, one sentence each; empty if nothing."""

    def path_in_container(self, mount: BindMount) -> str:
        """Where the program finds *mount*: the target, or the source where no mounts exist."""

    def ensure_image(self, image: str) -> str:
        """Make *image* available on the node; what its content is known by there.

        Whatever else its Python, its libraries or its platform were is another content.

        Raises:
            ImageMissing: It is neither here nor to be had.
        """

    def why_no_image(self, image: str) -> str | None:
        """Why *image* is neither here nor to be had; empty where it is, None: nobody can say."""

    def pythons(self, named: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the images *named* for Pythons that are here; see `NodeReading.pythons`."""

    def create(self, spec: ContainerSpec) -> None:
        """Create, do not start. Raises `ContainerExists`, `ImageMissing`, `PolicyViolation`."""

    def gpu_group(self, name: str) -> Path | None:
        """Where the control group of version 2 is in which container *name* will start, made.

        A driver limits by it what the program takes of GPUs. It goes with `remove` and `sweep`, who
        is told before. None where there is no such group before the program starts.
        """

    def start(self, name: str) -> None:
        """Start a created container; one that runs or ran is left as it is.

        Raises:
            ContainerMissing: No such container.
            RuntimeFailure: The engine refused (GPU not available, command not
                found …); the container is left in CREATED with `error` set,
                for the caller to remove.
        """

    def inspect(self, name: str) -> ContainerStatus | None:
        """The container's status; None when it does not exist."""

    def containers(self) -> list[ContainerStatus]:
        """Every container of this site on this node, whatever its state."""

    def wait(self, name: str, timeout_s: float) -> ContainerStatus:
        """Wait up to *timeout_s* for the end; the status then. Raises `ContainerMissing`."""

    def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM, *grace_s* to obey, SIGKILL. A container that is gone is fine."""

    def limit_memory(self, name: str, host_memory_bytes: int) -> None:
        """Have a container that runs hold so much from now on, which is more than it had.

        One that has ended is left as it is.

        Raises:
            ContainerMissing: No such container.
            RuntimeFailure: It keeps the limit that it had.
        """

    def remove(self, name: str) -> None:
        """Kill if need be and remove, its cgroup and its processes too. Idempotent."""

    def usage(self, name: str) -> Usage:
        """What it used until now; also after its exit, until `remove`."""

    def serves(self, name: str, port: int) -> bool:
        """Whether 127.0.0.1:*port* of this node leads to that container, and to nothing else.

        A port that it was promised is not enough: another program of the node may have it.
        """

    def execute(self, name: str, command: ExecCommand) -> Execution:
        """Start *command* beside the program of a container that runs.

        In the same container, so within its limits and gone with it; as the very user that the
        program has, in its working directory, with its environment, and with no privilege more.

        Raises:
            ContainerMissing: No such container.
            RuntimeFailure: It does not run, or this runtime starts no commands.
        """

    def frozen(self, name: str) -> AbstractContextManager[bool]:
        """Nothing of the container runs meanwhile; False where that cannot be had."""

    def own_folders(self, name: str) -> tuple[Path, ...]:
        """The host's directories of what it writes outside its mounts; those that can be read."""

    def read_log(self, name: str, offset: int, limit_bytes: int = 1 << 20) -> LogChunk:
        """At most *limit_bytes* of the log from *offset*; empty data when there is no more now.

        An offset beyond the end is taken for the end.

        Raises:
            ContainerMissing: No such container; `logfile.read_chunk` still reads its file.
        """

    def trim_logs(self) -> None:
        """Give up the oldest part of every log that is over its limit; offsets stay valid.

        The node's worker calls it every few seconds.
        """

    def sweep(self) -> None:
        """Remove what is nobody's: of creations that were killed, of containers others removed.

        The node's janitor calls it with every round; no container is touched.
        """

    def guard_network(self) -> str:
        """Put back in place what keeps containers from the node and from each other.

        `create` does so too; the node's worker calls it now and then, since a
        firewall that is reloaded forgets it under containers that run.

        Returns:
            What of it cannot be had, as a sentence; empty when nothing is amiss.
        """
