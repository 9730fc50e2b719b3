"""Limits and isolation, looked at from inside a container of a real engine."""

import fcntl
import os
import socket
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import docker
import pytest

import headway
from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy, CpuRule, NetworkMode, RootFilesystem
from headway.profile.wrap import wrapper
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.errors import ImageMissing, PolicyViolation, RuntimeFailure
from headway.runtime.port import BindMount, ContainerSpec, ContainerState
from headway.runtime.surroundings import surroundings
from headway.units import MIB
from tests.ports.runtime import Script
from tests.ports.runtime_harness import (
    LOOKS_AROUND,
    SLEEPS,
    SPEAKS,
    Harness,
    Program,
    until,
    whole_log,
)
from tests.support.whitelist import beyond, watched

pytestmark = pytest.mark.docker

ENTRY = Path(headway.__file__).parent / "run/gang_entry.sh"


@pytest.fixture
def harness(tmp_path: Path, busybox_image: str) -> Iterator[Harness]:
    def make(site: str, policy: ContainerPolicy) -> DockerRuntime:
        return DockerRuntime(site, policy, SystemClock())

    harness = Harness(make, tmp_path, busybox_image, site=f"limits{os.getpid()}")
    yield harness
    harness.clean_up()


def shell(text: str) -> Program:
    return Program(text, Script())


def says(harness: Harness, text: str, **changes: object) -> str:
    runtime, spec, ended = harness.ended(shell(text), **changes)
    assert ended.exit_code == 0, whole_log(runtime, spec.name)
    return whole_log(runtime, spec.name).decode()


def under(harness: Harness, **rules: object) -> Harness:
    """The same machine under a policy with other *rules*."""
    policy = harness.policy().model_copy(update=rules)
    return replace(harness, make=lambda site, _: harness.make(site, policy))


def test_limits_hold_inside(harness: Harness) -> None:
    text = (
        "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null;"
        "cat memory/memory.kmem.tcp.limit_in_bytes 2>/dev/null || cat memory.max;"
        "cat cpu/cpu.shares 2>/dev/null || cat cpu.weight;"
        "cat pids/pids.max 2>/dev/null || cat pids.max;"
        "df -k /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2; id -u; id -g"
    )
    found = says(
        harness, text, cpus=0.5, pids=77, shm_bytes=3 * MIB, user="20001:20002",
        host_memory_bytes=48 * MIB,
    )  # fmt: skip
    size, in_connections, weight, *rest = found.split()
    assert (size, *rest) == (str(48 * MIB), "77", "3072", "20001", "20002")
    assert in_connections == size  # of version 2 it is the same
    assert weight in {"512", "20", "50", "59"}  # of version 2 as the engine reckons it


def test_cpus_are_a_ceiling_where_the_site_says_so(harness: Harness) -> None:
    text = "cd /sys/fs/cgroup; cat cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 cpu.max"
    assert says(under(harness, cpus=CpuRule.CEILING), text, cpus=0.5) == "50000\n"


def test_privileges_are_gone(harness: Harness) -> None:
    found = says(harness, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status", user="0:0")
    fields = dict(line.split(":\t") for line in found.splitlines())
    assert fields == {"CapBnd": "0" * 16, "CapEff": "0" * 16, "NoNewPrivs": "1"}


def test_a_fork_bomb_meets_its_limit(harness: Harness) -> None:
    bomb = "i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; wait"
    spec = replace(harness.spec(shell(bomb)), pids=40)
    runtime = harness.started(spec)
    until(lambda: b"fork" in whole_log(runtime, spec.name))
    assert len(runtime.inspect(spec.name).pids) <= 40  # type: ignore[union-attr]


def test_the_environment_is_what_was_given(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_HEADWAY", "x")
    found = dict(line.split("=", 1) for line in says(harness, "env").splitlines())
    assert found["GIVEN"] == "a value with spaces"
    assert found["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert found["OMP_NUM_THREADS"] == "1"
    of_engine = {"PATH", "HOSTNAME", "PWD", "SHLVL", *surroundings("/tmp", {})}
    assert found.keys() - of_engine == {"GIVEN", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}


@pytest.mark.parametrize("user", ["2100000000:2100000000", "0:0", "1000:4242"])
def test_any_user_has_a_name_a_home_and_shared_memory(harness: Harness, user: str) -> None:
    found = says(harness, f"{LOOKS_AROUND}; cat /etc/passwd", user=user).splitlines()
    assert found[:2] == ["root" if user == "0:0" else "headway", user.partition(":")[0]]
    assert found[2] == "may write"
    assert "nobody:x:65534:65534:nobody:/:/bin/false" in found  # what the image has stays


def test_a_part_of_a_gang_says_that_what_it_was_asked_to_run_had_too_little_memory(
    harness: Harness,
) -> None:
    told, asks = harness.folder / "told", harness.folder / "asks"
    for folder in (told, asks):
        folder.mkdir()
        folder.chmod(0o777)
    (told / "go").write_text("serves=yes\n")
    (told / "1.run").write_text("true")
    spec = harness.spec(shell(""))
    mounts = (BindMount(told, "/told"), BindMount(asks, "/asks", read_only=False))
    command = ("/bin/sh", "-c", ENTRY.read_text(), "headway", "/told", "/asks")
    runtime = harness.started(
        replace(spec, command=command, mounts=mounts, host_memory_bytes=24 * MIB)
    )
    until((asks / "1.done").exists)
    # As Open MPI's orted, which ends well however its processes ended.
    (told / "2.part").write_text("dd if=/dev/zero of=/dev/null bs=200M count=1; true")
    (told / "2.part").rename(told / "2.run")
    until((asks / "2.done").exists)
    assert [(asks / f"{n}.done").read_text() for n in (1, 2)] == ["0\n", "0 oom\n"]
    assert runtime.inspect(spec.name).state is ContainerState.RUNNING  # type: ignore[union-attr]


def test_a_program_on_gpus_has_the_cpus_that_are_near_them(harness: Harness) -> None:
    one = max(os.sched_getaffinity(0))
    found = says(harness, "grep Cpus_allowed_list /proc/self/status", near_cpus=frozenset({one}))
    assert found.split() == ["Cpus_allowed_list:", str(one)]


def test_mounts(harness: Harness) -> None:
    data, outputs = harness.folder / "data", harness.folder / "outputs"
    data.mkdir()
    outputs.mkdir()
    outputs.chmod(0o777)
    (data / "file").write_text("content")
    mounts = (BindMount(data, "/data"), BindMount(outputs, "/outputs", read_only=False))
    text = "cat /data/file; touch /data/new 2>/dev/null || echo -n ' refused'; echo >/outputs/made"
    assert says(harness, text, mounts=mounts) == "content refused"
    assert (outputs / "made").exists()


def test_a_read_only_root_leaves_tmp(harness: Harness) -> None:
    strict = under(harness, root_filesystem=RootFilesystem.READ_ONLY, network=NetworkMode.NONE)
    text = "touch /x 2>/dev/null || echo refused; touch /tmp/x && echo fine; ls /sys/class/net"
    lines = says(strict, text).split()
    assert lines[:2] == ["refused", "fine"]
    assert not any(name.startswith("eth") for name in lines[2:])


def test_ports_are_on_loopback_only(harness: Harness) -> None:
    if amiss := harness.runtime().guard_network():
        pytest.skip(amiss)
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port = probe_socket.getsockname()[1]
    spec = replace(harness.spec(shell("echo up; exec nc -l -p 7777")), ports={7777: port})
    runtime = harness.started(spec)
    until(lambda: whole_log(runtime, spec.name) == b"up\n")
    bound = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert f"0100007F:{port:04X}" in bound
    assert f"00000000:{port:04X}" not in bound
    assert runtime.serves(spec.name, port)
    assert not runtime.serves(spec.name, port + 1)


def test_a_port_of_a_container_without_a_network_is_refused(harness: Harness) -> None:
    """It would run, and nobody would ever reach it."""
    alone = under(harness, network=NetworkMode.NONE)
    with pytest.raises(PolicyViolation, match=r"ports.*9123.*would have no network"):
        alone.started(replace(harness.spec(SPEAKS), ports={9123: 9124}))


def test_where_the_policy_says_so_a_gang_has_the_nodes_own_network(harness: Harness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer:
        port = peer.getsockname()[1]
        text = f"echo hello | nc 127.0.0.1 {port}"
        spec = replace(harness.spec(shell(text)), network=NetworkMode.HOST, ports={port: port})
        under(harness, gang_network="host").started(spec)
        peer.settimeout(20)
        connection, _ = peer.accept()
        with connection:
            assert connection.recv(100) == b"hello\n"


def test_the_group_goes_with_the_container(harness: Harness) -> None:
    runtime, spec, _ = harness.ended(SPEAKS)
    if any("memory peak" in weakness for weakness in runtime.weaknesses()):
        pytest.skip("this engine's groups are systemd's: none of ours outlives a container")
    group = f"headway/{harness.site}-{spec.name}"
    assert list(Path("/sys/fs/cgroup").glob(f"{group}*")) or list(
        Path("/sys/fs/cgroup").glob(f"*/{group}")
    )
    runtime.remove(spec.name)
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{group}"))
    assert not list(Path("/sys/fs/cgroup").glob(group))


def test_a_missing_image(harness: Harness) -> None:
    spec = replace(harness.spec(SPEAKS), image="registry.invalid/no/such:image")
    runtime = harness.runtime()
    with pytest.raises(ImageMissing, match="no/such"):
        runtime.create(spec)
    with pytest.raises(ImageMissing):
        runtime.ensure_image(spec.image)
    strict = harness.make(harness.site, ContainerPolicy(images=("python:*",)))
    with pytest.raises(PolicyViolation):
        strict.ensure_image(spec.image)
    assert runtime.inspect(spec.name) is None


def test_the_image_that_was_checked_is_the_one_that_starts(harness: Harness) -> None:
    spec = harness.spec(SPEAKS)
    runtime = harness.runtime()
    runtime.create(spec)
    client = docker.from_env()
    image_id = client.images.get(spec.image).id
    found = client.api.inspect_container(spec.name)["Config"]
    client.close()
    assert found["Image"] == image_id
    assert found["Labels"]["headway.image"] == f"docker.io/{spec.image}"
    # The beginning of an id is a name like any other: it never stands for that image.
    by_id = replace(harness.spec(SPEAKS), image=image_id.removeprefix("sha256:")[:12])
    with pytest.raises(ImageMissing):
        runtime.create(by_id)


@pytest.mark.parametrize("command", [("no-such-program",), ("/etc/passwd",)])
def test_a_program_that_cannot_be_executed(harness: Harness, command: tuple[str, ...]) -> None:
    runtime, spec, ended = harness.ended(SPEAKS, command=command)
    assert ended.exit_code in {126, 127}
    assert command[0].encode() in whole_log(runtime, spec.name)


def test_a_gpu_that_the_engine_cannot_give(harness: Harness) -> None:
    runtime = harness.runtime()
    with closing(docker.from_env()) as client:
        if "nvidia" in client.info()["Runtimes"]:
            pytest.skip("this engine can give GPUs")
    spec = replace(harness.spec(SPEAKS), gpu_uuids=(f"GPU-{uuid.uuid4()}",))
    runtime.create(spec)
    with pytest.raises(RuntimeFailure, match="nvidia-container-toolkit"):
        runtime.start(spec.name)
    status = runtime.inspect(spec.name)
    assert status is not None
    assert status.state is ContainerState.CREATED
    assert "device driver" in status.error


def test_an_image_without_a_shell_is_refused(harness: Harness) -> None:
    """What its program says could not be kept."""
    spec = replace(harness.spec(SPEAKS), image=_shell_less_image(), command=("/busybox", "id"))
    with pytest.raises(PolicyViolation, match=r"no-shell.*give an image that has /bin/sh"):
        harness.runtime().create(spec)
    assert harness.runtime().inspect(spec.name) is None


def _shell_less_image() -> str:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for source in ("/bin/busybox", "/usr/bin/busybox"):
            if Path(source).exists():
                tar.add(Path(source).resolve(), "busybox")
                break
    client = docker.from_env()
    client.api.import_image_from_data(buffer.getvalue(), "headway-test/no-shell", "local")
    client.close()
    return "headway-test/no-shell:local"


def described(container: str) -> dict[str, Any]:
    client = docker.from_env()
    try:
        found: dict[str, Any] = client.api.inspect_container(container)
    finally:
        client.close()
    return found


def test_nothing_beyond_the_list_reaches_the_engine(harness: Harness, tmp_path: Path) -> None:
    """As for every container of every test: see `tests.support.whitelist`."""
    with watched(None, tmp_path) as watch:
        spec = replace(
            harness.spec(SPEAKS), mounts=(BindMount(tmp_path, "/data"),), ports={9123: 9124}
        )
        harness.runtime().create(spec)
        found = described(spec.name)
        until(lambda: watch.seen == 1)
    assert beyond(found) == []
    # The list finds what it is to find.
    for key, value, said in (
        ("Privileged", True, "Privileged"),
        ("CapAdd", ["SYS_ADMIN"], "CapAdd"),
        ("CapDrop", None, "drops all capabilities"),
        ("PidMode", "host", "PidMode"),
        ("Binds", ["/:/host"], "Binds"),
        ("UsernsMode", "host", "UsernsMode"),
        ("SecurityOpt", ["seccomp=unconfined"], "gains no privileges"),
        ("MemorySwap", -1, "swap included"),
        ("NetworkMode", "container:other", "no other's network"),
        ("PortBindings", {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "80"}]}, "loopback"),
        ("Mounts", [{"Type": "bind", "Source": "/run/docker.sock", "Target": "/s"}], "mount"),
        ("NewOptionOfALaterEngine", "on", "NewOptionOfALaterEngine"),
    ):
        changed = found | {"HostConfig": found["HostConfig"] | {key: value}}
        (wrong,) = beyond(changed)
        assert said in wrong


def test_a_start_waits_for_one_that_is_at_work(harness: Harness) -> None:
    """The engine would run a program again that another start has just seen end."""
    spec = harness.spec(SPEAKS)
    harness.runtime().create(spec)
    hasty = DockerRuntime(harness.site, harness.policy(), SystemClock(), timeout_s=1)
    with spec.log_path.open() as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with pytest.raises(RuntimeFailure, match="being started by another"):
            hasty.start(spec.name)
        assert hasty.inspect(spec.name).state is ContainerState.CREATED  # type: ignore[union-attr]
    harness.runtime().start(spec.name)  # not by the hasty one: the engine may take a second
    assert harness.runtime().wait(spec.name, 20.0).exit_code == 3


NSYS = """\
#!/bin/sh
echo nsys speaks; echo and warns >&2
while [ "$1" = profile ] || [ "${1#--}" != "$1" ]; do shift; done
umask 0
"$@"
"""
"""As `tests/support/fake_nsys.py` does it; this image has no Python."""


def _profiled(harness: Harness, tmp_path: Path, text: str) -> ContainerSpec:
    tools, outputs = tmp_path / "nsight-systems", tmp_path / "outputs"
    for folder in (tools, outputs):
        folder.mkdir()
    outputs.chmod(0o777)
    (tools / "nsys").write_text(NSYS)
    (tools / "nsys").chmod(0o755)
    return replace(
        harness.spec(shell(text)),
        mounts=(BindMount(tools, "/opt/nsys"), BindMount(outputs, "/outputs", read_only=False)),
        wrapper=wrapper("/outputs/profile-1", 10.0, "/opt/nsys"),
    )


def test_a_profiled_program_is_the_same_program(harness: Harness, tmp_path: Path) -> None:
    spec = _profiled(harness, tmp_path, "echo hello; umask; exit 7")
    runtime = harness.started(spec)
    assert runtime.wait(spec.name, 30.0).exit_code == 7
    assert whole_log(runtime, spec.name) == b"hello\n0022\n"
    words = (tmp_path / "outputs/profile-1/nsys.log").read_text()
    assert words.startswith("nsys speaks\nand warns\n")


def test_a_profiled_program_gets_its_grace_time(harness: Harness, tmp_path: Path) -> None:
    text = "trap 'echo saved; exit 5' TERM; echo up; while :; do sleep 0.1; done"
    spec = _profiled(harness, tmp_path, text)
    runtime = harness.started(spec)
    until(lambda: b"up" in whole_log(runtime, spec.name))
    runtime.stop(spec.name, 10.0)
    assert runtime.wait(spec.name, 5.0).exit_code == 5
    assert whole_log(runtime, spec.name) == b"up\nsaved\n"


def test_page_cache_is_no_need_but_shared_memory_is(harness: Harness) -> None:
    """A limit must leave room for files in /dev/shm, not for those on a disk."""
    text = "dd if=/dev/zero of={} bs=1M count=40; sleep 1.2"
    peaks = {}
    for path in ("/outputs/file", "/dev/shm/file"):
        folder = harness.folder / "outputs"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        spec = replace(
            harness.spec(shell(text.format(path))),
            mounts=(BindMount(folder, "/outputs", read_only=False),),
            shm_bytes=64 * MIB, host_memory_bytes=256 * MIB,
        )  # fmt: skip
        runtime = harness.started(spec)
        while runtime.wait(spec.name, 0.1).state is not ContainerState.EXITED:
            runtime.usage(spec.name)
        used = runtime.usage(spec.name)
        assert used.host_cache_bytes is not None
        peaks[path] = (used.host_peak_bytes or 0, used.host_cache_bytes)
    on_disk, shared = peaks.values()
    assert on_disk[0] < 20 * MIB <= 40 * MIB <= shared[0]
    assert on_disk[1] >= 40 * MIB


def test_the_group_of_a_container_that_others_removed_goes(harness: Harness) -> None:
    left, runs = harness.spec(SPEAKS), harness.spec(SLEEPS)
    runtime = harness.started(left)
    if any("memory peak" in weakness for weakness in runtime.weaknesses()):
        pytest.skip("this engine's groups are systemd's: none of ours outlives a container")
    runtime.create(runs)
    runtime.start(runs.name)
    runtime.wait(left.name, 20.0)
    runtime.engine.api.remove_container(left.name, force=True)  # as `docker rm` does

    def groups() -> set[str]:
        found = Path("/sys/fs/cgroup").glob(f"**/headway/{harness.site}-*")
        return {path.name.removeprefix(f"{harness.site}-") for path in found}

    assert groups() == {left.name, runs.name}
    harness.runtime().sweep()
    assert groups() == {runs.name}
    assert runtime.inspect(runs.name).state is ContainerState.RUNNING  # type: ignore[union-attr]
