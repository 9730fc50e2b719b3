"""Programs for the runtimes' tests, and the machine that they run on."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from headway import waits
from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.runtime.port import ContainerSpec, ContainerStatus, Runtime
from headway.units import MIB
from tests.ports.runtime import OnTerm, Script

T = TypeVar("T")
END_S = 20.0
"""Nothing in here runs so long; a wait that ends here has failed."""
PROMPT_S = 30.0
"""On a machine that has much to do, too; what is not prompt would take 60 s in here."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program, as a shell command and as a script for the fake."""

    shell: str
    script: Script

    @property
    def command(self) -> tuple[str, ...]:
        """For a container."""
        return ("sh", "-c", self.shell)


MANY = 24_000

SPEAKS = Program(
    "echo one; echo two >&2; exit 3", Script(output=((0.0, b"one\ntwo\n"),), exit_code=3)
)
SUCCEEDS = Program("echo once", Script(output=((0.0, b"once\n"),)))
SLEEPS = Program("echo up; exec sleep 60", Script(output=((0.0, b"up\n"),), runs_s=60.0))
OBEYS = Program(
    "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done",
    Script(output=((0.0, b"up\n"),), runs_s=60.0, term_code=7),
)
LOOKS_AROUND = (
    "id -un; id -u; mkdir -p $XDG_CACHE_HOME/hub $XDG_CONFIG_HOME/matplotlib && "
    "touch ~/.netrc /dev/shm/block && echo may write"
)
"""A script: name and uid of who runs it, and whether it may write where programs do."""
IGNORES = Program(
    "trap '' TERM; echo up; while :; do sleep 0.05; done",
    Script(output=((0.0, b"up\n"),), runs_s=60.0, on_term=OnTerm.IGNORES),
)
EATS_MEMORY = Program(
    "exec dd if=/dev/zero of=/dev/null bs=150M count=1000",
    Script(exit_code=137, oom_killed=True),
)
CHILD_EATS_MEMORY = Program(
    "dd if=/dev/zero of=/dev/null bs=150M count=1000; exit 0", Script(oom_killed=True)
)
GROWS = Program("sleep 1; exec dd if=/dev/zero of=/dev/null bs=150M count=3", Script(runs_s=1.0))
"""Beyond the memory that it is given, but not at once."""
COUNTS = Program(
    f"i=0; while [ $i -lt {MANY} ]; do echo line $i; i=$((i+1)); done",
    Script(output=tuple((i / MANY, f"line {i}\n".encode()) for i in range(MANY)), runs_s=1.0),
)
FLOODS = Program(
    "yes 0123456789abcde | head -c 3145728", Script(output=((0.0, b"0123456789abcde\n" * 196_608),))
)
SPINS = Program(
    "trap 'kill 0' TERM; i=0; while [ $i -lt 4 ]; do (while :; do :; done) & i=$((i+1)); done; "
    "echo up; wait",
    Script(output=((0.0, b"up\n"),), runs_s=60.0),
)
"""Keeps four CPUs busy, where it is given so many."""
PROGRAMS = (
    *(SPEAKS, SUCCEEDS, SLEEPS, OBEYS, IGNORES),
    *(EATS_MEMORY, CHILD_EATS_MEMORY, GROWS, COUNTS, FLOODS),
)


@dataclass
class Harness:
    """One machine to test on.

    Attributes:
        make: (site, policy) → a runtime of its own on that machine, as
            another process would have it.
        folder: For logs and mounts; may be mounted.
        image: Has a shell, dd, head and yes.
    """

    make: Callable[[str, ContainerPolicy], Runtime]
    folder: Path
    image: str
    site: str = field(default_factory=lambda: f"contract{os.getpid()}")
    _number: Iterator[int] = field(default_factory=itertools.count)

    def policy(self) -> ContainerPolicy:
        """Mounts below `folder` only."""
        return ContainerPolicy(mount_roots=(self.folder,))

    def runtime(self) -> Runtime:
        """Another runtime on the same machine."""
        return self.make(self.site, self.policy())

    def spec(self, program: Program) -> ContainerSpec:
        """A container of its own for *program*."""
        attempt = next(self._number)
        name = f"{self.site}-run-{attempt}"
        return ContainerSpec(
            name=name,
            run_id=f"run-of-{self.site}",
            attempt=attempt,
            image=self.image,
            command=program.command,
            env={"GIVEN": "a value with spaces"},
            mounts=(),
            log_path=self.folder / f"{name}.log",
            host_memory_bytes=64 * MIB,
            cpus=1.0,
            shm_bytes=MIB,
            user="65534:65534" if os.geteuid() == 0 else "",
        )

    def started(self, spec: ContainerSpec) -> Runtime:
        """Create and start *spec*; its runtime."""
        runtime = self.runtime()
        runtime.create(spec)
        runtime.start(spec.name)
        return runtime

    def sleeping(self, program: Program) -> tuple[Runtime, ContainerSpec]:
        """A container of *program* that has said that it is up."""
        spec = self.spec(program)
        runtime = self.started(spec)
        until(lambda: whole_log(runtime, spec.name) == b"up\n")
        return runtime, spec

    def ended(
        self, program: Program, **changes: Any
    ) -> tuple[Runtime, ContainerSpec, ContainerStatus]:
        """A container of *program*, with *changes* of its specification, that has ended."""
        spec = replace(self.spec(program), **changes)
        runtime = self.started(spec)
        return runtime, spec, runtime.wait(spec.name, END_S)

    def clean_up(self) -> None:
        """Remove every container that a test left."""
        runtime = self.runtime()
        for status in runtime.containers():
            runtime.remove(status.name)


def whole_log(runtime: Runtime, name: str) -> bytes:
    """The log until now."""
    found, offset = b"", 0
    while (chunk := runtime.read_log(name, offset)).data:
        found, offset = found + chunk.data, chunk.next_offset
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for *condition*; fail when it does not come."""
    assert waits.until(condition, SystemClock(), END_S, 0.01)


def at_once(number: int, harness: Harness, act: Callable[[Runtime], T]) -> list[T]:
    """What *number* processes get from *act*, each with a runtime of its own, at one moment."""
    together = threading.Barrier(number)

    def run(runtime: Runtime) -> T:
        together.wait()
        return act(runtime)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, [harness.runtime() for _ in range(number)]))
