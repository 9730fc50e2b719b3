"""The runtime contract, on the fake and on both adapters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.errors import RuntimeFailure
from headway.model.container_policy import ContainerPolicy
from headway.model.exec_messages import ExecCommand
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.port import Runtime
from headway.runtime.process.programs import ProcessRuntime
from headway.testing.execution_contract import COMMANDS, ENDS, ExecutionContract
from headway.testing.runtime import FakeMachine, FakeRuntime
from headway.testing.runtime_contract import RuntimeContract
from headway.testing.runtime_harness import PROGRAMS, SLEEPS, Harness
from headway.testing.weight_contract import WeightContract


class TestFake(RuntimeContract, ExecutionContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        scripts = {program.command: program.script for program in PROGRAMS}
        machine = FakeMachine(scripts=scripts, commands=COMMANDS)

        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return FakeRuntime(site, policy, SystemClock(), machine)

        return Harness(make, tmp_path, "any")


class TestProcess(RuntimeContract, WeightContract):
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
class TestDocker(RuntimeContract, ExecutionContract, WeightContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, busybox_image: str) -> Iterator[Harness]:
        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return DockerRuntime(site, policy, SystemClock())

        harness = Harness(make, tmp_path, busybox_image)
        yield harness
        harness.clean_up()
