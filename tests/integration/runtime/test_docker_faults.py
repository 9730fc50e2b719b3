"""A private engine that is frozen, killed and restarted, and one that gives GPUs to a stub."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy, NetworkMode
from headway.model.run import ExitKind
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.errors import EngineUnreachable
from headway.runtime.outcome import classify_exit
from headway.runtime.port import ContainerState
from samples.local_image import BUSYBOX, build
from tests.ports.runtime import Script
from tests.ports.runtime_harness import SLEEPS, Harness, Program, until, whole_log
from tests.support import dockerd

pytestmark = [
    pytest.mark.docker,
    # The SDK leaves its socket to the garbage collector where the engine does not answer.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _needs_a_private_engine() -> None:
    if os.geteuid() != 0 or dockerd.why_none():
        pytest.skip(dockerd.why_none() or "only root can start a private engine")


@contextmanager
def private(folder: Path, daemon: dockerd.Daemon, timeout_s: int = 60) -> Iterator[Harness]:
    daemon.start()
    try:
        build("busybox", BUSYBOX, docker_host=daemon.host)

        def make(site: str, policy: ContainerPolicy) -> DockerRuntime:
            alone = policy.model_copy(update={"network": NetworkMode.NONE})
            return DockerRuntime(
                site, alone, SystemClock(), docker_host=daemon.host, timeout_s=timeout_s
            )

        harness = Harness(make, folder, BUSYBOX, site=f"faults{os.getpid()}")
        try:
            yield harness
        finally:
            harness.clean_up()
    finally:
        daemon.stop()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: an address of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        yield Path(folder)


def test_a_frozen_engine_is_unreachable_in_time(short: Path, tmp_path: Path) -> None:
    daemon = dockerd.Daemon(short)
    with private(tmp_path, daemon, timeout_s=2) as harness:
        spec = harness.spec(SLEEPS)
        runtime = harness.started(spec)
        daemon.freeze()
        try:
            for call in (
                lambda: runtime.inspect(spec.name),
                runtime.containers,
                lambda: runtime.wait(spec.name, 1.0),
                lambda: runtime.remove(spec.name),
                lambda: harness.runtime().weaknesses(),
            ):
                began_s = time.monotonic()
                with pytest.raises(EngineUnreachable):
                    call()
                assert time.monotonic() - began_s < 30.0
        finally:
            daemon.signal(signal.SIGCONT)
        status = runtime.inspect(spec.name)
        assert status is not None
        assert status.state is ContainerState.RUNNING


def test_with_live_restore_a_killed_engine_loses_nothing(short: Path, tmp_path: Path) -> None:
    daemon = dockerd.Daemon(short, live_restore="on")
    with private(tmp_path, daemon) as harness:
        shell = "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; exit 6"
        spec = harness.spec(Program(shell, Script()))
        runtime = harness.started(spec)
        daemon.kill()
        with pytest.raises(EngineUnreachable):
            runtime.inspect(spec.name)
        daemon.start()
        assert runtime.wait(spec.name, 30.0).exit_code == 6
        lines = whole_log(runtime, spec.name).decode().splitlines()
        assert lines == [f"line {i}" for i in range(40)]


def test_without_live_restore_it_is_the_infrastructure(short: Path, tmp_path: Path) -> None:
    daemon = dockerd.Daemon(short)
    with private(tmp_path, daemon) as harness:
        spec = harness.spec(SLEEPS)
        runtime = harness.started(spec)
        until(lambda: whole_log(runtime, spec.name) == b"up\n")
        daemon.kill()
        daemon.start()
        ended = runtime.wait(spec.name, 30.0)
        assert ended.state is ContainerState.EXITED
        assert not ended.oom_killed
        assert classify_exit(ended).kind is ExitKind.INFRASTRUCTURE


def test_a_gpu_request_reaches_the_hook(short: Path, tmp_path: Path) -> None:
    """The engine takes any program of this name for NVIDIA's runtime."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    hook = bin_folder / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\ncat >/dev/null\nexit 0\n")
    hook.chmod(0o755)
    daemon = dockerd.Daemon(short, path_first=bin_folder)
    with private(tmp_path, daemon) as harness:
        runtime = harness.runtime()
        uuids = ("GPU-11111111-aaaa-bbbb-cccc-000000000001", "GPU-11111111-aaaa-bbbb-cccc-2")
        spec = harness.spec(Program("echo $NVIDIA_VISIBLE_DEVICES", Script()))
        spec = replace(spec, gpu_uuids=uuids)
        runtime.create(spec)
        runtime.start(spec.name)
        assert runtime.wait(spec.name, 20.0).exit_code == 0
        assert whole_log(runtime, spec.name).decode().strip() == ",".join(uuids)
