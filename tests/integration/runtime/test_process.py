"""What only the process runtime promises: its shim may die, its starter may die."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.model.run import ExitKind
from headway.runtime.errors import PolicyViolation, RuntimeFailure
from headway.runtime.outcome import classify_exit
from headway.runtime.port import BindMount, ContainerSpec, ContainerState, Runtime
from headway.runtime.process import notes, proctree, programs
from headway.runtime.process.programs import ProcessRuntime
from headway.runtime.surroundings import surroundings
from headway.units import MIB
from tests.ports.runtime import Script
from tests.ports.runtime_harness import LOOKS_AROUND, SLEEPS, Harness, Program, until, whole_log


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    def make(site: str, policy: ContainerPolicy) -> ProcessRuntime:
        return ProcessRuntime(tmp_path / site, policy, SystemClock())

    harness = Harness(make, tmp_path, "any")
    yield harness
    harness.clean_up()


def shell(text: str) -> Program:
    return Program(text, Script())


def noted(harness: Harness, name: str, file: str) -> dict[str, dict[str, int]]:
    return json.loads((harness.folder / harness.site / "containers" / name / file).read_text())


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
def test_a_program_starts_in_the_group_by_which_drivers_limit_it(tmp_path: Path) -> None:
    gone: list[Path] = []

    def let_go(folder: Path) -> None:
        assert folder.is_dir()
        gone.append(folder)

    def make(site: str, policy: ContainerPolicy) -> ProcessRuntime:
        return ProcessRuntime(tmp_path / site, policy, SystemClock(), let_go=let_go)

    harness = Harness(make, tmp_path, "any")
    try:
        runtime, spec = harness.runtime(), harness.spec(SLEEPS)
        runtime.create(spec)
        group = runtime.gpu_group(spec.name)
        assert group is not None
        assert group.is_dir()
        runtime.start(spec.name)
        status = runtime.inspect(spec.name)
        assert status is not None
        inside = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        assert set(status.pids) <= inside
        runtime.sweep()
        assert gone == []
        runtime.remove(spec.name)
        assert (gone, group.exists()) == ([group], False)
        left = runtime.gpu_group("nobody")  # of a container that others removed
        assert left is not None
        runtime.sweep()
        assert (gone, left.exists()) == ([group, left], False)
    finally:
        harness.clean_up()


def test_a_killed_shim_takes_its_program_along_and_is_infrastructure(harness: Harness) -> None:
    spec = harness.spec(SLEEPS)
    runtime = harness.started(spec)
    running = noted(harness, spec.name, "running.json")
    os.kill(running["shim"]["pid"], signal.SIGKILL)
    until(lambda: not alive(running["program"]["pid"]))
    status = runtime.wait(spec.name, 5.0)
    assert (status.state, status.exit_code) == (ContainerState.EXITED, None)
    assert classify_exit(status).kind is ExitKind.INFRASTRUCTURE


def holders(harness: Harness, name: str) -> tuple[int, int]:
    """The program's keeper and its shim."""
    shim = noted(harness, name, "running.json")["shim"]["pid"]
    return psutil.Process(shim).ppid(), shim


DAEMON = "env -i setsid sh -c 'sleep 63 & echo $!'; exec sleep 63"
"""Leaves behind a process of a session of its own, with an empty environment."""


def leaving(harness: Harness, text: str) -> tuple[Runtime, ContainerSpec, int]:
    """A container of a program that has told which process it leaves behind."""
    spec = harness.spec(shell(text))
    runtime = harness.started(spec)
    until(lambda: b"\n" in whole_log(runtime, spec.name))
    return runtime, spec, int(whole_log(runtime, spec.name))


def test_a_killed_shim_takes_along_what_cleared_its_environment(harness: Harness) -> None:
    runtime, spec, daemon = leaving(harness, DAEMON)
    os.kill(holders(harness, spec.name)[1], signal.SIGKILL)
    assert runtime.wait(spec.name, 10.0).state is ContainerState.EXITED
    assert not alive(daemon)  # what is said to have ended holds nothing any more


def test_a_program_is_said_to_run_as_long_as_something_of_it_lives(harness: Harness) -> None:
    runtime, spec, _ = leaving(harness, DAEMON)
    keeper, shim = holders(harness, spec.name)
    os.kill(keeper, signal.SIGSTOP)  # as where what is left is in state D
    os.kill(shim, signal.SIGKILL)
    assert runtime.wait(spec.name, 0.5).state is ContainerState.RUNNING
    os.kill(keeper, signal.SIGCONT)
    assert runtime.wait(spec.name, 10.0).state is ContainerState.EXITED


@pytest.mark.parametrize("file", ["spec.json", "running.json", "usage.json"])
@pytest.mark.parametrize("cut", [b"", b'{"run_id": "x', b"null", b"\xff\x00"])
def test_a_damaged_file_of_one_program_stops_nobody_and_undoes_no_end(
    harness: Harness, file: str, cut: bytes
) -> None:
    """A loss of power can leave an empty file behind any name."""
    ended, other = harness.spec(shell("echo once; exit 3")), harness.spec(SLEEPS)
    runtime = harness.started(ended)
    runtime.wait(ended.name, 10.0)
    before = runtime.inspect(ended.name)
    (harness.folder / harness.site / "containers" / ended.name / file).write_bytes(cut)
    runtime.create(other)
    runtime.start(other.name)
    found = {each.name: each for each in runtime.containers()}
    assert found[ended.name] == before
    assert found[other.name].state is ContainerState.RUNNING
    assert whole_log(runtime, ended.name) == b"once\n"
    runtime.usage(ended.name)
    runtime.stop(ended.name, 1.0)
    runtime.remove(ended.name)
    assert [each.name for each in runtime.containers()] == [other.name]


@pytest.mark.parametrize("cut", [b"", b'{"exit_code": 0'])
def test_an_end_that_cannot_be_read_is_an_end_of_which_nothing_is_known(
    harness: Harness, cut: bytes
) -> None:
    runtime, spec, _ = harness.ended(shell("exit 0"))
    (harness.folder / harness.site / "containers" / spec.name / "exit.json").write_bytes(cut)
    status = runtime.wait(spec.name, 5.0)
    assert (status.state, status.exit_code) == (ContainerState.EXITED, None)
    assert (status.run_id, status.attempt) == (spec.run_id, spec.attempt)
    assert classify_exit(status).kind is ExitKind.INFRASTRUCTURE


def test_a_program_whose_files_are_all_damaged_still_runs_and_can_be_removed(
    harness: Harness,
) -> None:
    spec = harness.spec(SLEEPS)
    runtime = harness.started(spec)
    pid = noted(harness, spec.name, "running.json")["program"]["pid"]
    folder = harness.folder / harness.site / "containers" / spec.name
    (folder / "running.json").write_bytes(b"")
    status = runtime.inspect(spec.name)
    assert status is not None
    assert (status.state, status.pids) == (ContainerState.RUNNING, (pid,))
    runtime.start(spec.name)  # not a second time
    runtime.remove(spec.name)
    assert not alive(pid)
    assert runtime.inspect(spec.name) is None


def test_remove_finds_what_a_killed_shim_and_its_keeper_left(harness: Harness) -> None:
    runtime, spec, _ = leaving(harness, "setsid sleep 61 & echo $!; exec sleep 61")
    pids = runtime.inspect(spec.name).pids  # type: ignore[union-attr]
    assert len(pids) == 2
    for holder in holders(harness, spec.name):
        os.kill(holder, signal.SIGKILL)
    time.sleep(0.1)
    assert any(alive(pid) for pid in pids)  # the one that left the session
    runtime.remove(spec.name)
    until(lambda: not any(alive(pid) for pid in pids))


def test_what_cannot_be_killed_is_given_up_for_now(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in state D takes no signal: here nobody's signals arrive."""
    runtime, spec, left = leaving(harness, "setsid sleep 64 & echo $!; exec sleep 64")
    for holder in holders(harness, spec.name):
        os.kill(holder, signal.SIGKILL)
    with monkeypatch.context() as deaf:
        deaf.setattr(proctree, "send", lambda *_: None)
        deaf.setattr(programs, "_KILL_TIMEOUT_S", 0.3)
        with pytest.raises(RuntimeFailure, match=rf"cannot be killed: .*{left} \(state S\)"):
            runtime.remove(spec.name)
    assert runtime.inspect(spec.name) is not None
    runtime.remove(spec.name)
    assert runtime.inspect(spec.name) is None
    assert not alive(left)


def test_what_the_program_leaves_behind_ends_with_it(harness: Harness) -> None:
    # Forked twice into a session of its own, as daemons do.
    text = "(setsid sh -c 'sleep 62 & echo $!' &); sleep 0.3; exit 4"
    runtime, spec, status = harness.ended(shell(text))
    assert status.exit_code == 4
    assert not alive(int(whole_log(runtime, spec.name)))


ENDS_ITS_FIRST_THREAD = """
import ctypes, os, sys, threading, time
if os.fork() == 0:
    threading.Thread(target=time.sleep, args=(60,)).start()
    print(os.getpid(), flush=True)
    ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("then", ["ends", "is stopped"])
def test_whose_first_thread_has_ended_is_seen_and_ends_with_it(harness: Harness, then: str) -> None:
    lasts = "60" if then == "is stopped" else "0.5"
    command = (sys.executable, "-c", ENDS_ITS_FIRST_THREAD, lasts)
    spec = replace(harness.spec(SLEEPS), command=command)
    runtime = harness.started(spec)
    until(lambda: whole_log(runtime, spec.name) != b"")
    pid = int(whole_log(runtime, spec.name))
    until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")
    status = runtime.inspect(spec.name)
    assert status is not None
    assert pid in status.pids
    if then == "is stopped":
        runtime.stop(spec.name, 0.0)
    runtime.wait(spec.name, 30.0)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a program of one's own user may do what one may")
@pytest.mark.parametrize("call", ["unshare(0x10000000)", "syscall(425, 4, bytes(120))"])
def test_what_could_not_be_counted_is_refused(harness: Harness, call: str) -> None:
    text = f"import ctypes, sys; sys.exit(0 if ctypes.CDLL(None).{call} < 0 else 1)"
    _, _, status = harness.ended(SLEEPS, command=(sys.executable, "-c", text), user="65534:65534")
    assert status.exit_code == 0


def test_it_outlives_its_starter(harness: Harness) -> None:
    spec = harness.spec(shell("echo up; sleep 0.5; exit 5"))
    runtime = harness.runtime()
    runtime.create(spec)
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom headway.clock import SystemClock\n"
        "from headway.model.container_policy import ContainerPolicy\n"
        "from headway.runtime.process.programs import ProcessRuntime\n"
        f"ProcessRuntime(Path({str(harness.folder / harness.site)!r}), ContainerPolicy(), "
        f"SystemClock()).start({spec.name!r})\nos.killpg(0, signal.SIGKILL)\n"
    )
    starter = subprocess.run([sys.executable, "-c", code], start_new_session=True, check=False)
    assert starter.returncode == -signal.SIGKILL
    assert runtime.wait(spec.name, 10.0).exit_code == 5


@pytest.mark.parametrize(
    ("place", "value"), [("_START_TIMEOUT_S", 0.0), ("sys.executable", "/missing/python")]
)
def test_a_start_that_this_machine_cannot_do_now_may_be_repeated(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, place: str, value: object
) -> None:
    spec = harness.spec(shell("exit 0"))
    runtime = harness.runtime()
    runtime.create(spec)
    with monkeypatch.context() as now:
        now.setattr(f"headway.runtime.process.programs.{place}", value)
        with pytest.raises(RuntimeFailure, match="could not be started"):
            runtime.start(spec.name)
    assert runtime.wait(spec.name, 0.0).state is ContainerState.CREATED
    runtime.start(spec.name)
    assert runtime.wait(spec.name, 10.0).exit_code == 0


def test_the_environment_is_what_was_given(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_HEADWAY", "x")
    runtime, spec, _ = harness.ended(shell("env; ulimit -c; grep NoNewPrivs /proc/self/status"))
    lines = whole_log(runtime, spec.name).decode().splitlines()
    keys = {line.split("=")[0] for line in lines if "=" in line} - {"PWD", "_", "OLDPWD", "SHLVL"}
    assert keys == {"PATH", "PYTHONPATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
                    "HEADWAY_CONTAINER", "GIVEN", *surroundings("", {})}  # fmt: skip
    assert "GIVEN=a value with spaces" in lines
    assert "CUDA_VISIBLE_DEVICES=" in lines
    assert "0" in lines
    assert "NoNewPrivs:\t1" in lines
    folder = harness.folder / harness.site / "containers" / spec.name
    assert not (folder / "env.json").exists()
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives programs places of their own")
def test_a_user_of_the_site_has_a_name_a_home_and_shared_memory(harness: Harness) -> None:
    user = "2100000000:2100000000"
    runtime, spec, _ = harness.ended(shell(LOOKS_AROUND), user=user)
    assert whole_log(runtime, spec.name).decode().split("\n")[:3] == [
        "headway",
        "2100000000",
        "may write",
    ]


def test_forked_workers_are_not_killed_for_shared_memory(harness: Harness) -> None:
    program = (
        "import os,time\nblock=bytearray(os.urandom(1))*(40<<20)\n"
        "for _ in range(4):\n    if not os.fork(): time.sleep(0.6); os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
    )
    command = (sys.executable, "-c", program)
    runtime, spec, ended = harness.ended(SLEEPS, command=command, host_memory_bytes=100 * MIB)
    assert (ended.exit_code, ended.oom_killed) == (0, False)
    peak = runtime.usage(spec.name).host_peak_bytes
    assert peak is not None
    assert 40 * MIB < peak < 100 * MIB


def test_a_fork_bomb_is_stopped_and_says_why(harness: Harness) -> None:
    bomb = "i=0; while [ $i -lt 300 ]; do sleep 63 & i=$((i+1)); done; wait"
    _, _, ended = harness.ended(shell(bomb), pids=50, host_memory_bytes=1024 * MIB)
    found = classify_exit(ended)
    assert found.kind is ExitKind.FAILED
    assert "its limit is 50" in found.message


@pytest.mark.parametrize(
    ("command", "code"), [(("/missing/program",), 127), (("/etc/passwd",), 126)]
)
def test_a_program_that_cannot_be_executed(
    harness: Harness, command: tuple[str, ...], code: int
) -> None:
    runtime, spec, status = harness.ended(SLEEPS, command=command)
    assert status.exit_code == code
    assert command[0].encode() in whole_log(runtime, spec.name)


def test_a_number_used_again_is_not_taken_for_the_shim(harness: Harness) -> None:
    runtime, spec, _ = harness.ended(shell("exit 0"))
    folder = harness.folder / harness.site / "containers" / spec.name
    (folder / "exit.json").unlink()
    running = noted(harness, spec.name, "running.json")
    running["shim"]["pid"] = os.getpid()  # lives, but is another process
    (folder / "running.json").write_text(json.dumps(running))
    status = runtime.wait(spec.name, 10.0)  # its keeper leaves a moment after the note
    assert status.state is ContainerState.EXITED


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@ROOT
def test_a_program_of_roots_site_is_not_root(harness: Harness) -> None:
    program = "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status"
    text = f"{program}; cat /etc/shadow; setpriv --reuid=0 id -u; umask"
    runtime, spec, _ = harness.ended(shell(text))
    lines = whole_log(runtime, spec.name).decode().splitlines()
    assert lines[:3] == ["65534"] * 3
    assert "NoNewPrivs:\t1" in lines
    assert "CapEff:\t0000000000000000" in lines
    assert "cat: /etc/shadow: Permission denied" in lines
    assert "0" not in lines


@ROOT
@pytest.mark.parametrize("user", ["", "0:0", "0:65534", "00:1"])
def test_root_runs_no_program_as_root(harness: Harness, user: str) -> None:
    runtime = harness.runtime()
    spec = replace(harness.spec(SLEEPS), user=user)
    with pytest.raises(PolicyViolation, match="HEADWAY_CONTAINER_USER"):
        runtime.create(spec)
    assert runtime.inspect(spec.name) is None


@ROOT
def test_a_program_imports_the_samples_of_a_clone_below_a_closed_directory(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as /root: Python lists each directory that it imports from, so it must be readable."""
    clone = harness.folder / "closed" / "headway"
    (clone / "samples").mkdir(parents=True)
    (clone / "samples" / "__init__.py").touch()
    (clone / "samples" / "here.py").write_text("print('imported')\n")
    (clone.parent).chmod(0o700)
    monkeypatch.setattr(notes, "PROJECT", clone)
    runtime, spec, status = harness.ended(shell("python -m samples.here"))
    assert (status.exit_code, whole_log(runtime, spec.name)) == (0, b"imported\n")


@ROOT
def test_a_program_does_not_write_what_its_user_owns_and_it_may_only_read(
    harness: Harness,
) -> None:
    home = harness.folder / harness.site
    data, other = home / "data", home / "another-runs-outputs"
    home.mkdir(mode=0o711)
    for folder in (data, other):
        folder.mkdir()
        (folder / "x").write_text("seen\n")
        os.chown(folder, 65534, 65534)
        os.chown(folder / "x", 65534, 65534)
    program = (
        f"cat {data}/x; chmod u+w {data}/x; echo new > {data}/x; echo new > {data}/y; "
        f"echo new > {other}/y; cat {other}/x; true"
    )
    mounts = (BindMount(data, "/data"),)
    runtime, spec, status = harness.ended(shell(program), user="65534:65534", mounts=mounts)
    assert status.exit_code == 0
    seen = whole_log(runtime, spec.name).decode().splitlines()
    assert [line for line in seen if line in ("seen", "new")] == ["seen"]
    files = sorted(path for folder in (data, other) for path in folder.iterdir())
    assert files == [other / "x", data / "x"]
    assert {path.read_text() for path in files} == {"seen\n"}


@ROOT
def test_a_program_reaches_what_it_needs_below_a_closed_directory_and_nothing_else(
    harness: Harness,
) -> None:
    closed = harness.folder / "closed"
    (closed / "in" / "data").mkdir(parents=True)
    (closed / "in" / "outputs").mkdir()
    (closed / "in" / "data" / "x").write_text("seen\n")
    (closed / "in" / "data" / "key").write_text("hidden\n")
    (closed / "in" / "data" / "key").chmod(0o600)
    (closed / "secret").write_text("hidden\n")
    os.chown(closed / "in" / "outputs", 65534, 65534)
    closed.chmod(0o700)
    program = (
        f"cd {closed}; cat in/data/x; cat in/data/key secret; ls in; echo new > in/outputs/y; "
        "echo new > in/data/y; echo new > z; umount in/data; ls -A; true"
    )
    mounts = (
        BindMount(closed / "in" / "data", "/data"),
        BindMount(closed / "in" / "outputs", "/outputs", read_only=False),
    )
    runtime, spec, status = harness.ended(shell(program), mounts=mounts)
    assert status.exit_code == 0
    log = whole_log(runtime, spec.name).decode()
    assert "seen" in log
    assert "hidden" not in log
    assert "cat: secret: No such file" in log
    assert (closed / "in" / "outputs" / "y").stat().st_uid == 65534
    assert sorted(each.name for each in (closed / "in" / "data").iterdir()) == ["key", "x"]
    assert not (closed / "z").exists()


@ROOT
def test_what_a_program_leaves_where_everybody_may_write_is_its_own_and_goes(
    harness: Harness,
) -> None:
    places, name = ["/tmp", "/var/tmp", "/run/lock", "/dev/shm"], f"left-{uuid4().hex}"
    program = (
        f"for at in {' '.join(places)}; do echo mine > $at/{name}; done; ls -A {' '.join(places)}; "
        "python -c 'import ctypes; libc = ctypes.CDLL(None); "
        "print([libc.shmget(0, size, 0o1600) >= 0 for size in (4096, 2**27)])'; "
        "head -c 128M /dev/zero > /dev/shm/more; stat -c %s /dev/shm/more; mktemp"
    )
    runtime, spec, _ = harness.ended(shell(program), shm_bytes=64 * MIB)
    log = whole_log(runtime, spec.name).decode()
    assert log.count(f"{name}\n") == len(places), log
    assert "[True, False]" in log, log
    assert int(re.findall(r"^[0-9]+$", log, re.MULTILINE)[0]) < 64 * MIB, log
    assert not [place for place in places if Path(place, name).exists()]
    (own,) = runtime.own_folders(spec.name)
    assert len(list(own.glob(f"*/{name}"))) == len(places) - 1
    runtime.remove(spec.name)
    assert not own.exists()


@ROOT
def test_what_waits_in_connections_is_bounded(harness: Harness) -> None:
    program = (
        "import socket; held, sent = [], 0\n"
        "door = socket.create_server(('127.0.0.1', 0))\n"
        "for _ in range(200):\n"
        "    one = socket.create_connection(door.getsockname())\n"
        "    held += [one, door.accept()[0]]; one.setblocking(False)\n"
        "    try:\n"
        "        while True: sent += one.send(bytes(1 << 16))\n"
        "    except BlockingIOError: pass\n"
        "print(sent >> 20)"
    )
    python = shell(f'python -c "{program}"')
    runtime, spec, status = harness.ended(python, host_memory_bytes=96 * MIB)
    assert status.oom_killed or int(whole_log(runtime, spec.name)) < 150


@ROOT
def test_memory_that_no_process_has_mapped_counts(harness: Harness) -> None:
    program = (
        "import os; held = os.memfd_create('held')\n"
        "for _ in range(200): os.write(held, b'x' * 2**20)\n"
        "print('survived')"
    )
    python = shell(f'python -c "{program}"')
    runtime, spec, status = harness.ended(python, host_memory_bytes=96 * MIB)
    assert status.oom_killed
    assert b"survived" not in whole_log(runtime, spec.name)
