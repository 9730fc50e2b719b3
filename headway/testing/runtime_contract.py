"""What every runtime must do. Subclass `RuntimeContract` and give it a `harness` fixture."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headway.errors import ContainerExists, ContainerMissing, PolicyViolation
from headway.model.container_policy import ContainerPolicy
from headway.runtime.port import BindMount, ContainerSpec, ContainerState, ContainerStatus, Runtime
from headway.testing.runtime import OnTerm, Script
from headway.units import MIB

T = TypeVar("T")
_END_S = 20.0
"""Nothing in here runs so long; a wait that ends here has failed."""
_PROMPT_S = 30.0
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


_MANY = 24_000

SPEAKS = Program(
    "echo one; echo two >&2; exit 3", Script(output=((0.0, b"one\ntwo\n"),), exit_code=3)
)
SUCCEEDS = Program("echo once", Script(output=((0.0, b"once\n"),)))
SLEEPS = Program("echo up; exec sleep 60", Script(output=((0.0, b"up\n"),), runs_s=60.0))
OBEYS = Program(
    "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done",
    Script(output=((0.0, b"up\n"),), runs_s=60.0, term_code=7),
)
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
COUNTS = Program(
    f"i=0; while [ $i -lt {_MANY} ]; do echo line $i; i=$((i+1)); done",
    Script(output=tuple((i / _MANY, f"line {i}\n".encode()) for i in range(_MANY)), runs_s=1.0),
)
FLOODS = Program(
    "yes 0123456789abcde | head -c 3145728", Script(output=((0.0, b"0123456789abcde\n" * 196_608),))
)
PROGRAMS = (
    *(SPEAKS, SUCCEEDS, SLEEPS, OBEYS, IGNORES),
    *(EATS_MEMORY, CHILD_EATS_MEMORY, COUNTS, FLOODS),
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
        return runtime, spec, runtime.wait(spec.name, _END_S)

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
    give_up_s = time.monotonic() + _END_S
    while not condition():
        assert time.monotonic() < give_up_s, "waited in vain"
        time.sleep(0.01)


def at_once(number: int, harness: Harness, act: Callable[[Runtime], T]) -> list[T]:
    """What *number* processes get from *act*, each with a runtime of its own, at one moment."""
    together = threading.Barrier(number)

    def run(runtime: Runtime) -> T:
        together.wait()
        return act(runtime)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, [harness.runtime() for _ in range(number)]))


class RuntimeContract:
    """The port's promises, one test each."""

    def test_a_program_runs_and_its_end_is_known(self, harness: Harness) -> None:
        runtime, spec = harness.runtime(), harness.spec(SPEAKS)
        runtime.create(spec)
        created = runtime.inspect(spec.name)
        assert created is not None
        assert created.state is ContainerState.CREATED
        assert created.exit_code is None
        runtime.start(spec.name)
        ended = harness.runtime().wait(spec.name, _END_S)
        assert (ended.state, ended.exit_code, ended.oom_killed) == (ContainerState.EXITED, 3, False)
        assert (ended.name, ended.run_id, ended.attempt) == (spec.name, spec.run_id, spec.attempt)
        assert ended.started_at is not None
        assert ended.ended_at is not None
        assert ended.started_at <= ended.ended_at
        assert whole_log(runtime, spec.name) == b"one\ntwo\n"

    def test_waiting_gives_up_in_time(self, harness: Harness) -> None:
        spec = harness.spec(SLEEPS)
        runtime = harness.started(spec)
        began_s = time.monotonic()
        assert runtime.wait(spec.name, 0.3).state is ContainerState.RUNNING
        assert 0.25 <= time.monotonic() - began_s < _PROMPT_S

    def test_waiting_for_one_that_was_not_started(self, harness: Harness) -> None:
        runtime, spec = harness.runtime(), harness.spec(SLEEPS)
        runtime.create(spec)
        began_s = time.monotonic()
        assert runtime.wait(spec.name, 0.2).state is ContainerState.CREATED
        assert time.monotonic() - began_s >= 0.2

    def test_of_sixteen_creates_one_wins(self, harness: Harness) -> None:
        spec = harness.spec(SUCCEEDS)

        def create(runtime: Runtime) -> bool:
            try:
                runtime.create(spec)
            except ContainerExists:
                return False
            return True

        assert sorted(at_once(16, harness, create)) == [False] * 15 + [True]

    def test_a_program_is_started_once(self, harness: Harness) -> None:
        runtime, spec = harness.runtime(), harness.spec(SUCCEEDS)
        runtime.create(spec)
        at_once(6, harness, lambda another: another.start(spec.name))
        runtime.wait(spec.name, _END_S)
        runtime.start(spec.name)
        assert runtime.wait(spec.name, _END_S).state is ContainerState.EXITED
        assert whole_log(runtime, spec.name) == b"once\n"

    def test_what_does_not_exist(self, harness: Harness) -> None:
        runtime = harness.runtime()
        assert runtime.inspect("nobody") is None
        runtime.stop("nobody", 0.0)
        runtime.remove("nobody")
        for ask in (
            runtime.start,
            lambda name: runtime.wait(name, 0.1),
            lambda name: runtime.read_log(name, 0),
        ):
            with pytest.raises(ContainerMissing):
                ask("nobody")

    def test_stop_lets_the_program_end_itself(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(OBEYS)
        began_s = time.monotonic()
        runtime.stop(spec.name, 60.0)
        assert time.monotonic() - began_s < _PROMPT_S
        assert runtime.wait(spec.name, _END_S).exit_code == 7
        runtime.stop(spec.name, 10.0)

    def test_stop_kills_what_does_not_obey(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(IGNORES)
        began_s = time.monotonic()
        runtime.stop(spec.name, 1.0)
        assert 0.9 < time.monotonic() - began_s < _PROMPT_S
        ended = runtime.wait(spec.name, _END_S)
        assert (ended.exit_code, ended.oom_killed) == (137, False)

    def test_remove_ends_everything(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        status = runtime.inspect(spec.name)
        assert status is not None
        assert status.pids
        runtime.remove(spec.name)
        assert runtime.inspect(spec.name) is None
        assert spec.name not in {status.name for status in runtime.containers()}
        runtime.remove(spec.name)
        runtime.create(spec)  # the name is free again

    def test_a_program_beyond_its_memory_is_killed(self, harness: Harness) -> None:
        _, _, ended = harness.ended(EATS_MEMORY)
        assert (ended.exit_code, ended.oom_killed) == (137, True)

    def test_a_child_beyond_the_memory_is_noticed(self, harness: Harness) -> None:
        _, _, ended = harness.ended(CHILD_EATS_MEMORY)
        assert ended.oom_killed
        assert ended.exit_code in {0, 137}

    def test_use_is_known_after_the_end(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(COUNTS)
        used = runtime.usage(spec.name)
        assert used.host_peak_bytes is not None
        assert 0 < used.host_peak_bytes <= spec.host_memory_bytes
        assert used.cpu_s is not None

    def test_what_it_writes_elsewhere_lies_in_directories(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(SUCCEEDS)
        assert all(folder.is_dir() for folder in runtime.own_folders(spec.name))
        assert runtime.own_folders("nobody") == ()

    def test_no_line_is_lost_or_doubled(self, harness: Harness) -> None:
        spec = harness.spec(COUNTS)
        runtime = harness.started(spec)
        found, offset = b"", 0
        while True:
            ended = runtime.wait(spec.name, 0.0).state is ContainerState.EXITED
            # A reader of its own each time, as after a crash.
            chunk = harness.runtime().read_log(spec.name, offset, 7_777)
            assert chunk.skipped_bytes == 0
            assert len(chunk.data) <= 7_777
            found, offset = found + chunk.data, chunk.next_offset
            if ended and not chunk.data:
                break
        assert found.decode().splitlines() == [f"line {i}" for i in range(_MANY)]

    def test_a_flood_gives_up_its_oldest_part(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(FLOODS, log_limit_bytes=MIB)
        runtime.trim_logs()
        first = runtime.read_log(spec.name, 0)
        assert first.skipped_bytes >= 2 * MIB - 4096
        assert b"\0" not in first.data
        left, offset = first.data, first.next_offset
        while (chunk := runtime.read_log(spec.name, offset)).data:
            assert chunk.skipped_bytes == 0
            left, offset = left + chunk.data, chunk.next_offset
        assert first.skipped_bytes + len(left) == 3 * MIB
        assert left.endswith(b"0123456789abcde\n")
        assert len(left) <= MIB + 4096

    def test_an_image_that_is_here_is_not_missed(self, harness: Harness) -> None:
        assert harness.runtime().why_no_image(harness.image) == ""

    def test_the_policy_is_kept(self, harness: Harness) -> None:
        spec = harness.spec(SUCCEEDS)
        strict = harness.make(harness.site, ContainerPolicy(images=("allowed/*",)))
        with pytest.raises(PolicyViolation, match="allowed/"):
            strict.create(spec)
        runtime = harness.runtime()
        link = harness.folder / "link"
        link.symlink_to("/usr")
        for source in (Path("/usr"), link, harness.folder / "missing"):
            outside = replace(spec, mounts=(BindMount(source, "/data"),))
            with pytest.raises(PolicyViolation, match="mount source"):
                runtime.create(outside)
        assert runtime.inspect(spec.name) is None

    def test_sites_do_not_see_each_other(self, harness: Harness) -> None:
        spec = harness.spec(SUCCEEDS)
        harness.started(spec)
        other = harness.make(f"{harness.site}x", harness.policy())
        assert other.inspect(spec.name) is None
        assert spec.name not in {status.name for status in other.containers()}
        other.remove(spec.name)
        assert harness.runtime().inspect(spec.name) is not None

    def test_containers_lists_every_state(self, harness: Harness) -> None:
        runtime = harness.runtime()
        created, running, ended = (harness.spec(p) for p in (SUCCEEDS, SLEEPS, SUCCEEDS))
        runtime.create(created)
        harness.started(running)
        harness.started(ended).wait(ended.name, _END_S)
        assert {status.name: status.state for status in runtime.containers()} == {
            created.name: ContainerState.CREATED,
            running.name: ContainerState.RUNNING,
            ended.name: ContainerState.EXITED,
        }
