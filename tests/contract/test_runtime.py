"""The runtime contract, on the fake and on both adapters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.port import Runtime
from headway.runtime.process.programs import ProcessRuntime
from headway.testing.runtime import FakeMachine, FakeRuntime
from headway.testing.runtime_contract import RuntimeContract
from headway.testing.runtime_harness import PROGRAMS, Harness


class TestFake(RuntimeContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        machine = FakeMachine(scripts={program.command: program.script for program in PROGRAMS})

        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return FakeRuntime(site, policy, SystemClock(), machine)

        return Harness(make, tmp_path, "any")


class TestProcess(RuntimeContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[Harness]:
        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return ProcessRuntime(tmp_path / site, policy, SystemClock())

        harness = Harness(make, tmp_path, "any")
        yield harness
        harness.clean_up()


@pytest.mark.docker
class TestDocker(RuntimeContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, busybox_image: str) -> Iterator[Harness]:
        def make(site: str, policy: ContainerPolicy) -> Runtime:
            return DockerRuntime(site, policy, SystemClock())

        harness = Harness(make, tmp_path, busybox_image)
        yield harness
        harness.clean_up()
