"""The runtime contract, on the fake and on both adapters."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cgroups import Cgroups
from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.model.exec_messages import ExecCommand
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState, Runtime
from headway.runtime.process.programs import ProcessRuntime
from tests.ports.runtime import FakeMachine, FakeRuntime
from tests.ports.runtime_contract import COMMANDS, ENDS, ExecutionContract, RuntimeContract
from tests.ports.runtime_harness import PROGRAMS, PROMPT_S, SLEEPS, Harness, until
from tests.ports.weight_contract import WeightContract


class TestFake(RuntimeContract, ExecutionContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        scripts = {program.command: program.script for program in PROGRAMS}
        machine = FakeMachine(scripts=scripts, commands=COMMANDS)

        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return FakeRuntime(site, policy, SystemClock(), machine)

        return Harness(make, tmp_path, "any")


class FreezingContract:
    """What `Runtime.frozen` promises where there are control groups."""

    def test_who_is_frozen_writes_nothing_and_can_be_stopped(self, harness: Harness) -> None:
        if not Cgroups().writable():
            pytest.skip("not root, or no control groups")
        spec = replace(harness.spec(SLEEPS), command=("sh", "-c", "while :; do echo up; done"))
        runtime = harness.started(spec)
        with harness.runtime().frozen(spec.name) as is_frozen:
            assert is_frozen
            size = spec.log_path.stat().st_size
            time.sleep(0.2)
            assert spec.log_path.stat().st_size == size
        until(lambda: spec.log_path.stat().st_size > size)
        with runtime.frozen(spec.name):  # as if whoever froze it had died
            runtime.stop(spec.name, 0.0)
            assert runtime.wait(spec.name, PROMPT_S).state is ContainerState.EXITED
        with runtime.frozen("nobody") as is_frozen:
            assert not is_frozen


class TestProcess(RuntimeContract, WeightContract, FreezingContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[Harness]:
        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return ProcessRuntime(tmp_path / site, policy, SystemClock())

        harness = Harness(make, tmp_path, "any")
        yield harness
        harness.clean_up()

    def test_it_starts_no_command_beside_a_program(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        with pytest.raises(RuntimeFailure, match="install Docker"):
            runtime.execute(spec.name, ExecCommand(arguments=ENDS))


@pytest.mark.docker
class TestDocker(RuntimeContract, ExecutionContract, WeightContract, FreezingContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, busybox_image: str) -> Iterator[Harness]:
        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return DockerRuntime(site, policy, SystemClock())

        harness = Harness(make, tmp_path, busybox_image)
        yield harness
        harness.clean_up()
