"""Programs as plain processes, for machines without a container engine.

A "container" is a folder with what was asked, a shim that holds the program,
and what the shim wrote down. Nothing runs between the calls but the shims.
"""

import contextlib
import json
import math
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

import headway
from headway.clock import Clock
from headway.errors import ContainerExists, ContainerMissing, PolicyViolation, RuntimeFailure
from headway.model.policy import ContainerPolicy
from headway.project import PACKAGE, PROJECT
from headway.runtime import logfile
from headway.runtime.port import (
    BindMount,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    LogChunk,
    RuntimeKind,
    Usage,
)
from headway.runtime.process import passage, proctree, shim
from headway.runtime.rules import check_spec, real_source

_POLL_S = 0.02
_START_TIMEOUT_S = 15.0
_KILL_TIMEOUT_S = 10.0
_TOKEN = "HEADWAY_CONTAINER"  # noqa: S105 - names a process's container, opens nothing
_LIBRARIES = tuple(str(Path(module.__file__ or "").parents[1]) for module in (headway, psutil))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessRuntime:
    """Runs programs as processes of this machine, with the limits that this allows.

    The image's name is noted and otherwise ignored: the program finds what
    the machine has. Mounts are not made: the program is told the sources
    (`path_in_container`).

    Args:
        home: Everything is kept below; one site each.
        policy: What programs may do.
        clock: Waits between looks at a program.
    """

    kind = RuntimeKind.PROCESS

    def __init__(self, home: Path, policy: ContainerPolicy, clock: Clock) -> None:
        self._folders = home / "containers"
        self._policy = policy
        self._clock = clock

    def weaknesses(self) -> tuple[str, ...]:
        """What plain processes cannot enforce here, one sentence each."""
        found = [
            "The memory limit is held by a watchdog, so it may be passed for 0.1 s.",
            "The limit on processes is held by the same watchdog.",
            "Programs see the machine's files, network and other processes, as their user may.",
            "The image is not used: programs find what this machine has installed.",
            "Programs of one user can reach each other, and what others of them write.",
            "Shared memory and published ports are not limited.",
            "Only outputs, checkpoint and log count against resources.disk.",
        ]
        if not hasattr(os, "sched_setaffinity"):
            found.append("CPUs are not limited: programs are only told how many to use.")
        if not sys.platform.startswith("linux"):
            found += [
                "A program that leaves its process group may outlive its run.",
                "The log's limit is not held: this system cannot give up the oldest part.",
            ]
        return tuple(found)

    def path_in_container(self, mount: BindMount) -> str:
        """The mount's source: the program sees the host's paths."""
        return str(mount.source)

    def ensure_image(self, image: str) -> None:
        """Nothing to do: programs find what the machine has. Raises `PolicyViolation`."""

    def guard_network(self) -> str:
        """Nothing to do: `weaknesses` says that programs have the machine's network."""
        return ""

    def why_no_image(self, image: str) -> str:  # noqa: ARG002 - the port's signature
        """Nothing: no image is used."""
        return ""

    # ----- life -----

    def create(self, spec: ContainerSpec) -> None:
        """Note what is asked, do not start. Raises `ContainerExists`, `PolicyViolation`."""
        check_spec(spec, self._policy)
        for mount in spec.mounts:
            real_source(mount, self._policy.mount_roots)
        user = _user(spec)
        os.close(logfile.open_log(spec.log_path, user))
        self._folders.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = secrets.token_hex(16)
        # Filled under another name and renamed: whoever finds it finds all of it.
        part = self._folders / f".new-{token}"
        part.mkdir(mode=0o700)
        try:
            (part / "spec.json").write_text(json.dumps(self._noted(spec, user, token)))
            env_path = part / "env.json"
            env_path.touch(mode=0o600)
            env_path.write_text(json.dumps(_environment(spec, token)))
            part.rename(self._folder(spec.name))
        except OSError as error:
            shutil.rmtree(part)
            if self._folder(spec.name).exists():
                raise ContainerExists(spec.name) from error
            raise RuntimeFailure(
                f"container {spec.name} could not be noted below {self._folders}: {error}"
            ) from error

    def _noted(
        self, spec: ContainerSpec, user: tuple[int, int] | None, token: str
    ) -> dict[str, Any]:
        """What the shim and later readers need; the environment is kept apart."""
        return {
            "run_id": spec.run_id,
            "attempt": spec.attempt,
            "image": spec.image,
            "command": [*spec.wrapper, *spec.command],
            "log_path": str(spec.log_path.resolve()),
            "log_limit_bytes": spec.log_limit_bytes,
            "host_memory_bytes": spec.host_memory_bytes,
            "pids": spec.pids,
            "working_dir": str(spec.log_path.resolve().parent),
            "user": user,
            "passage": passage.plan(user, _needs(spec)) if user is not None else None,
            "affinity": self._choose_cpus(spec.cpus),
            "token": token,
        }

    def _choose_cpus(self, cpus: float) -> list[int]:
        """The CPUs that the fewest other containers were given."""
        if not hasattr(os, "sched_getaffinity"):
            return []
        available = os.sched_getaffinity(0)
        taken = dict.fromkeys(available, 0)
        for folder in self._all():
            noted = _load(folder / "spec.json")
            if noted is None or (folder / "exit.json").exists():
                continue
            for cpu in noted["affinity"]:
                taken[cpu] = taken.get(cpu, 0) + 1
        free_first = sorted(available, key=lambda cpu: (taken[cpu], cpu))
        return sorted(free_first[: math.ceil(cpus)])

    def start(self, name: str) -> None:
        """Start a created container; one that runs or ran is left as it is."""
        folder = self._existing(name)
        if (folder / "running.json").exists():
            return
        try:
            _spawn_shim(folder)
        except (OSError, subprocess.SubprocessError) as error:  # EAGAIN, ENOMEM, a stuck disk
            raise RuntimeFailure(f"container {name} could not be started: {error}") from error
        if not self._noted_start(folder):
            said = (folder / "shim.log").read_text(errors="replace").strip()[-500:]
            raise RuntimeFailure(f"container {name} could not be started: {said or 'no reason'}")

    def _noted_start(self, folder: Path) -> bool:
        """Was the start noted? Another process may be at it just now."""
        give_up_s = self._clock.monotonic_s() + 1.0
        while not (folder / "running.json").exists():
            if self._clock.monotonic_s() > give_up_s:
                return False
            self._clock.sleep(_POLL_S)
        return True

    def inspect(self, name: str) -> ContainerStatus | None:
        """The container's status; None when it does not exist."""
        folder = self._folder(name)
        # The order matters: what was noted first is read last, so no end is missed.
        running_before = _load(folder / "running.json")
        alive = running_before is not None and _is(running_before["shim"])
        ended = _load(folder / "exit.json")
        noted = _load(folder / "spec.json")
        if noted is None:
            return None
        state = ContainerState.EXITED
        pids: tuple[int, ...] = ()
        if running_before is None:
            state = ContainerState.CREATED
        elif ended is None and alive:
            state, pids = ContainerState.RUNNING, _pids(running_before)
        return ContainerStatus(
            name=name,
            run_id=noted["run_id"],
            attempt=noted["attempt"],
            state=state,
            exit_code=ended["exit_code"] if ended else None,
            oom_killed=bool(ended and ended["oom_killed"]),
            started_at=_moment(running_before["started_at"]) if running_before else None,
            ended_at=_moment(ended["ended_at"]) if ended else None,
            pids=pids,
            error=ended["error"] if ended else "",
        )

    def containers(self) -> list[ContainerStatus]:
        """Every container below this home, whatever its state."""
        found = (self.inspect(folder.name) for folder in self._all())
        return [status for status in found if status is not None]

    def wait(self, name: str, timeout_s: float) -> ContainerStatus:
        """Wait up to *timeout_s* for the end; the status then. Raises `ContainerMissing`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            status = self.inspect(name)
            if status is None:
                raise ContainerMissing(name)
            left_s = deadline_s - self._clock.monotonic_s()
            if status.state is ContainerState.EXITED or left_s <= 0:
                return status
            self._clock.sleep(min(_POLL_S, left_s))

    def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM to its process group, *grace_s* to obey, SIGKILL to all of it."""
        folder = self._folder(name)
        running = _load(folder / "running.json")
        if running is None or (folder / "exit.json").exists():
            return
        if _is(running["program"]):
            _signal_group(running["program"]["pid"], signal.SIGTERM)
            if self._ended(folder, running, grace_s):
                return
        self._kill(folder, running)

    def _kill(self, folder: Path, running: Mapping[str, Any]) -> None:
        """Have the shim kill everything; do it ourselves where the shim is gone.

        Raises:
            RuntimeFailure: Something of it lives on, as a process in state D does.
        """
        if _is(running["shim"]):
            _signal(running["shim"]["pid"], signal.SIGTERM)
            if self._ended(folder, running, _KILL_TIMEOUT_S):
                return
            _signal(running["shim"]["pid"], signal.SIGKILL)
        noted = _load(folder / "spec.json")
        give_up_s = self._clock.monotonic_s() + _KILL_TIMEOUT_S
        while noted and (left := proctree.with_token(noted["token"])):
            if self._clock.monotonic_s() > give_up_s:
                which = ", ".join(f"{pid} (state {proctree.state(pid) or '?'})" for pid in left)
                raise RuntimeFailure(
                    f"processes of container {folder.name} cannot be killed: {which}. What it "
                    "holds stays granted to it; it is tried again"
                )
            for pid in left:
                _signal(pid, signal.SIGKILL)
            self._clock.sleep(_POLL_S)

    def _ended(self, folder: Path, running: Mapping[str, Any], timeout_s: float) -> bool:
        """Wait until the shim has noted the end, and is gone; False when the time is up."""
        give_up_s = self._clock.monotonic_s() + timeout_s
        while not (folder / "exit.json").exists():
            if self._clock.monotonic_s() >= give_up_s or not _is(running["shim"]):
                return False
            self._clock.sleep(_POLL_S)
        return True

    def remove(self, name: str) -> None:
        """Kill if need be and remove, its processes too. Idempotent."""
        folder = self._folder(name)
        running = _load(folder / "running.json")
        if running is not None and not (folder / "exit.json").exists():
            self._kill(folder, running)
        gone = self._folders / f".gone-{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(gone)  # the name is free at once, whatever happens below
        for left in self._folders.glob(".gone-*"):  # an earlier removal may have been killed
            shutil.rmtree(left, ignore_errors=True)

    # ----- what it used and printed -----

    def usage(self, name: str) -> Usage:
        """What it used until a second ago; after its exit all of it, until `remove`."""
        used = _load(self._folder(name) / "usage.json")
        if used is None:
            return Usage()
        return Usage(
            host_peak_bytes=used["peak_bytes"] or None,
            host_used_bytes=used["used_bytes"],
            cpu_s=used["cpu_s"],
        )

    def own_folders(self, name: str) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """None: what a process writes elsewhere lies among everybody's files."""
        return ()

    def read_log(self, name: str, offset: int, limit_bytes: int = 1 << 20) -> LogChunk:
        """At most *limit_bytes* of the log from *offset*. Raises `ContainerMissing`."""
        noted = _load(self._folder(name) / "spec.json")
        if noted is None:
            raise ContainerMissing(name)
        return logfile.read_chunk(Path(noted["log_path"]), offset, limit_bytes)

    def trim_logs(self) -> None:
        """Give up the oldest part of logs over their limit. The shims do it too."""
        for folder in self._all():
            noted = _load(folder / "spec.json")
            if noted is not None:
                logfile.trim(Path(noted["log_path"]), noted["log_limit_bytes"])

    # ----- folders -----

    def _folder(self, name: str) -> Path:
        return self._folders / name

    def _existing(self, name: str) -> Path:
        folder = self._folder(name)
        if not folder.is_dir():
            raise ContainerMissing(name)
        return folder

    def _all(self) -> list[Path]:
        if not self._folders.is_dir():
            return []
        return sorted(p for p in self._folders.iterdir() if not p.name.startswith("."))


def _spawn_shim(folder: Path) -> None:
    """Start the shim, and wait until it has started the program or given up."""
    ready, report = os.pipe()
    try:
        with (folder / "shim.log").open("ab") as words:
            command = (
                sys.executable,
                "-I",
                "-S",
                shim.__file__,
                str(folder),
                str(report),
                *_LIBRARIES,
            )
            starter = subprocess.Popen(
                command,
                pass_fds=[report],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={"PATH": _PATH},
                start_new_session=True,
            )
        os.close(report)
        report = -1
        select.select([ready], [], [], _START_TIMEOUT_S)
        try:
            starter.wait(_START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            starter.kill()  # it must not start the program after all
            starter.wait()
            raise
    finally:
        os.close(ready)
        if report >= 0:
            os.close(report)


def _user(spec: ContainerSpec) -> tuple[int, int] | None:
    """The user to become; None to stay. Never root: nothing would hold the program back."""
    if os.geteuid() == 0 and spec.user.partition(":")[0].lstrip("0") == "":
        raise PolicyViolation(
            "user",
            spec.user or "root",
            "without a container engine programs do not run as root; set "
            "HEADWAY_CONTAINER_USER to the uid:gid of another user",
        )
    if not spec.user:
        return None
    uid, gid = (int(part) for part in spec.user.split(":"))
    if (uid, gid) == (os.geteuid(), os.getegid()):
        return None
    if os.geteuid() != 0:
        raise RuntimeFailure(
            f"container {spec.name} should run as {spec.user}, but headway is not root and can "
            f"only start programs as {os.geteuid()}:{os.getegid()}; leave the user out"
        )
    return uid, gid


def _needs(spec: ContainerSpec) -> list[tuple[Path, bool]]:
    """What a program must be able to reach, and whether it writes there."""
    python = [Path(sys.prefix), Path(sys.base_prefix)]
    packages = [PACKAGE, PROJECT / "samples"]
    return [
        *((path, False) for path in (*python, *packages)),
        *((mount.source, not mount.read_only) for mount in spec.mounts),
        (spec.log_path.resolve().parent, True),
    ]


def _environment(spec: ContainerSpec, token: str) -> dict[str, str]:
    """Built from nothing: what headway itself was given stays with headway."""
    own = {
        "PATH": f"{Path(sys.executable).parent}:{_PATH}",
        "HOME": str(spec.log_path.resolve().parent),
        "PYTHONPATH": str(PROJECT),  # the samples
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(max(1, int(spec.cpus))),
        "CUDA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids),
    }
    return own | dict(spec.env) | {_TOKEN: token}


def _load(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return value


def _is(process: Mapping[str, Any]) -> bool:
    """Does the very process that was noted still live?"""
    return process["identity"] is not None and shim.identity(process["pid"]) == process["identity"]


def _pids(running: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(proctree.tree(running["shim"]["pid"]))


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
