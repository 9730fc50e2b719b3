"""The process runtime: programs as plain processes of this machine.

A "container" is a folder with what was asked, a shim that holds the program,
and what the shim wrote down. Nothing runs between the calls but the shims.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import psutil

import headway
from headway import trees
from headway.clock import Clock
from headway.durable import UNFINISHED, give_name, remove_unfinished, replace_file
from headway.model.container_policy import ContainerPolicy, CpuRule
from headway.model.exec_messages import ExecCommand
from headway.runtime import logfile
from headway.runtime.errors import ContainerExists, ContainerMissing, RuntimeFailure
from headway.runtime.listening import listens
from headway.runtime.logfile import LogChunk
from headway.runtime.port import (
    BindMount,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    RuntimeKind,
    Usage,
)
from headway.runtime.process import notes, passage, proctree, shim
from headway.runtime.process.folder import Noted, is_held, lives, read_usage
from headway.runtime.process.watchdog import MEMORY_LIMIT
from headway.runtime.rules import check_spec, real_source
from headway.runtime.run_groups import RunGroups
from headway.runtime.surroundings import OWN_TMP, with_user
from headway.waits import until

log = logging.getLogger(__name__)

_OWN, _ACCOUNTS = "own", Path("/etc/passwd")
"""In a container's folder: what it sees in the place of /tmp and its like."""
_BEYOND_WATCHDOG = 1.05
"""Of its memory, so that the watchdog, which says why, is there before the kernel."""
_POLL_S = 0.02
_START_TIMEOUT_S = 15.0
_KILL_TIMEOUT_S = 10.0
_LIBRARIES = tuple(str(Path(module.__file__ or "").parents[1]) for module in (headway, psutil))


class ProcessRuntime:
    """Runs programs as processes of this machine, with the limits that this allows.

    The image's name is ignored: the program finds what the machine has. Mounts
    are not made: the program is told the sources (`path_in_container`).

    Args:
        home: Everything is kept below; one site each.
        policy: What programs may do.
        clock: Waits between readings of what a shim has written.
        reserve_cpus: Held back on this node from runs.
        let_go: See `RunGroups`.
    """

    kind = RuntimeKind.PROCESS

    def __init__(
        self,
        home: Path,
        policy: ContainerPolicy,
        clock: Clock,
        reserve_cpus: float = 0.0,
        let_go: Callable[[Path], None] = lambda _folder: None,
    ) -> None:
        self._folders = home / "containers"
        site = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
        self._run_groups = RunGroups(site, reserve_cpus, let_go)
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
            "Published ports are not limited.",
            *(
                ["Shared memory counts beside the memory limit, up to resources.shm."]
                if os.geteuid() == 0 and passage.may_mount()
                else [
                    "Shared memory is not limited.",
                    "Only outputs, checkpoint and log count against resources.disk, not /tmp.",
                ]
            ),
        ]
        if self._policy.cpus is CpuRule.GUARANTEE and not self._weighs:
            found.append(
                "CPU time cannot be shared by weight: programs are kept to the CPUs of their job."
            )
        return tuple(found)

    def path_in_container(self, mount: BindMount) -> str:
        """The mount's source: the program sees the host's paths."""
        return str(mount.source)

    def ensure_image(self, image: str) -> str:  # noqa: ARG002 - the port's signature
        """The Python that programs find, whatever the image: they have what the machine has."""
        return f"{sys.executable} {sys.version} {sysconfig.get_platform()}"

    def guard_network(self) -> str:
        """Nothing to do: `weaknesses` says that programs have the machine's network."""
        return ""

    def why_no_image(self, image: str) -> None:
        """Nobody can say: no image is used here."""

    def pythons(self, named: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002 - the port's
        """The one that runs headway, in which programs start."""
        return {".".join(map(str, sys.version_info[:2])): ""}

    @property
    def _weighs(self) -> bool:
        """Are a program's CPUs a weight, and not a set of CPUs that it may not leave?"""
        return self._policy.cpus is CpuRule.GUARANTEE and self._run_groups.cgroups.weighable()

    # ----- life -----

    def create(self, spec: ContainerSpec) -> None:
        """Note what is asked, do not start. Raises `ContainerExists`, `PolicyViolation`."""
        check_spec(spec, self._policy)
        for mount in spec.mounts:
            real_source(mount, self._policy.mount_roots)
        user = notes.user_of(spec)
        os.close(logfile.open_log(spec.log_path, user))
        self._folders.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = secrets.token_hex(16)
        others = [each.spec for each in self._noted() if each.spec and not each.is_over]
        # Filled under another name and renamed: whoever finds it finds all of it.
        part = self._folders / f"{UNFINISHED}{token}"
        part.mkdir(mode=0o700)
        try:
            own = self._own_places(part, spec.name, user) if user is not None else {}
            home = self._folders.parent
            asked = notes.noted(spec, user, token, others, own, home=home, weighs=self._weighs)
            asked["memory_group"] = self._run_groups.path(spec.name) if self._has_groups else ""
            replace_file(part / "spec.json", json.dumps(asked))
            replace_file(part / "env.json", json.dumps(notes.environment(spec, token, own)))
            give_name(part, self._folder(spec.name))
        except OSError as error:
            shutil.rmtree(part)
            if self._folder(spec.name).exists():
                raise ContainerExists(spec.name) from error
            raise RuntimeFailure(
                f"container {spec.name} could not be noted below {self._folders}: {error}"
            ) from error

    def _own_places(self, part: Path, name: str, user: tuple[int, int]) -> dict[Path, Path]:
        """Where everybody may write → a folder in *part*, by the path that it gets with *name*.

        Beside these the list of accounts, in which *user* has a name.
        """
        if not passage.may_mount():
            return {}
        found = {}
        (part / _OWN).mkdir()
        for number, place in enumerate(passage.open_places()):
            made = part / _OWN / str(number)
            made.mkdir()
            made.chmod(0o1777)
            found[place] = self._folder(name) / _OWN / str(number)
        accounts = with_user(_ACCOUNTS.read_text(errors="replace"), *user, OWN_TMP)
        replace_file(part / _ACCOUNTS.name, accounts, mode=0o644, lasts=False)
        return found | {_ACCOUNTS: self._folder(name) / _ACCOUNTS.name}

    def gpu_group(self, name: str) -> Path | None:
        """The group that the program joins before it starts."""
        return self._run_groups.gpu_group(name)

    def start(self, name: str) -> None:
        """Start a created container; one that runs or ran is left as it is."""
        folder = self._folder(name)
        running, noted = folder / "running.json", Noted.read(folder)
        if not folder.is_dir():
            raise ContainerMissing(name)
        if running.exists():
            return
        spec = {} if noted is None else noted.spec
        memory_bytes = spec.get("host_memory_bytes", math.inf) * _BEYOND_WATCHDOG
        doors = self._run_groups.doors(name, spec.get("weight_cpus"), memory_bytes)
        try:
            _start_shim(folder, ":".join(map(str, doors)))
        except (OSError, subprocess.SubprocessError) as error:  # EAGAIN, ENOMEM, a stuck disk
            raise RuntimeFailure(f"container {name} could not be started: {error}") from error
        # Another process may be at it just now.
        if not until(running.exists, self._clock, 1.0, _POLL_S):
            said = (folder / "shim.log").read_text(errors="replace").strip()[-500:]
            raise RuntimeFailure(f"container {name} could not be started: {said or 'no reason'}")

    @property
    def _has_groups(self) -> bool:
        return self._run_groups.cgroups.writable()

    def inspect(self, name: str) -> ContainerStatus | None:
        """The container's status; None when it does not exist."""
        noted = Noted.read(self._folder(name))
        return None if noted is None else noted.status()

    def serves(self, name: str, port: int) -> bool:
        """Whether one of its processes listens there."""
        status = self.inspect(name)
        return status is not None and listens(status.pids, port)

    def execute(self, name: str, command: ExecCommand) -> NoReturn:  # noqa: ARG002 - the port's
        """Refuse: what the shim has not started itself, it does not find and kill for certain."""
        if self.inspect(name) is None:
            raise ContainerMissing(name)
        raise RuntimeFailure(
            "its node runs programs without a container engine, where no command can be started "
            "beside them and surely ended with them; use `headway logs`, or install Docker there"
        )

    def containers(self) -> list[ContainerStatus]:
        """Every container below this home, whatever its state."""
        return [each.status() for each in self._noted()]

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
        noted = Noted.read(folder)
        if noted is None or not noted.began or noted.ended:
            return
        self._run_groups.thaw(name)
        program = noted.running.get("program")
        if program is not None and lives(program):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program["pid"], signal.SIGTERM)
            if self._ends(folder, grace_s):
                return
        self._kill(folder, noted)

    def _kill(self, folder: Path, noted: Noted) -> None:
        """Have the shim kill everything; do it here where the shim is gone.

        Raises:
            RuntimeFailure: Something of it lives on, as a process in state D does.
        """
        shim = noted.running.get("shim")
        if shim is not None and lives(shim):
            proctree.send(shim["pid"], signal.SIGTERM)
            if self._ends(folder, _KILL_TIMEOUT_S):
                return
            proctree.send(shim["pid"], signal.SIGKILL)
        token = noted.about("token")
        left: list[int] = []

        def gone() -> bool:
            left[:] = proctree.with_token(token) if token else []
            for pid in left:
                proctree.send(pid, signal.SIGKILL)
            return not left and not is_held(folder)

        if not until(gone, self._clock, _KILL_TIMEOUT_S, _POLL_S):
            which = ", ".join(f"{pid} (state {proctree.state(pid) or '?'})" for pid in left)
            raise RuntimeFailure(
                f"processes of container {folder.name} cannot be killed: {which or 'its shim'}. "
                "What it holds stays granted to it; it is tried again"
            )

    def _ends(self, folder: Path, timeout_s: float) -> bool:
        """Wait until the shim has noted the end, or all is gone; whether it has noted it."""
        end = folder / "exit.json"
        until(lambda: end.exists() or not is_held(folder), self._clock, timeout_s, _POLL_S)
        return end.exists()

    def limit_memory(self, name: str, host_memory_bytes: int) -> None:
        """Have its watchdog, and its control group, hold a program to more from now on."""
        folder = self._folder(name)
        if not folder.is_dir():
            raise ContainerMissing(name)
        try:
            if self._has_groups:
                self._run_groups.limit_memory(name, int(host_memory_bytes * _BEYOND_WATCHDOG))
            replace_file(folder / MEMORY_LIMIT, str(host_memory_bytes), lasts=False)
        except OSError as error:
            raise RuntimeFailure(f"container {name} keeps its memory limit: {error}") from error

    def remove(self, name: str) -> None:
        """Kill if need be and remove, its processes too. Idempotent."""
        folder = self._folder(name)
        noted = Noted.read(folder)
        if noted is not None and noted.began and not noted.ended:
            self._run_groups.thaw(name)
            self._kill(folder, noted)
        gone = self._folders / f".gone-{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(gone)  # the name is free at once, whatever happens below
        self._remove_gone()
        if self._has_groups:
            self._run_groups.remove(name)

    def _remove_gone(self) -> None:
        for left in self._folders.glob(".gone-*"):  # an earlier removal may have been killed
            with contextlib.suppress(OSError):
                trees.remove(left)

    # ----- what it used and printed -----

    def usage(self, name: str) -> Usage:
        """What it used until a second ago; after its exit all of it, until `remove`."""
        used = read_usage(self._folder(name))
        return Usage(
            host_peak_bytes=used.get("peak_bytes") or None,
            host_used_bytes=used.get("used_bytes"),
            cpu_s=used.get("cpu_s"),
        )

    def frozen(self, name: str) -> contextlib.AbstractContextManager[bool]:
        """Nothing of it runs meanwhile; False without control groups."""
        return self._run_groups.frozen(name)

    def own_folders(self, name: str) -> tuple[Path, ...]:
        """What it sees in the place of /tmp and its like, where it was given its own."""
        folder = self._folder(name) / _OWN
        return (folder,) if folder.is_dir() else ()

    def read_log(self, name: str, offset: int, limit_bytes: int = 1 << 20) -> LogChunk:
        """At most *limit_bytes* of the log from *offset*. Raises `ContainerMissing`."""
        noted = Noted.read(self._folder(name))
        log_path = noted.about("log_path") if noted is not None else None
        if log_path is None:
            raise ContainerMissing(name)
        return logfile.read_chunk(Path(log_path), offset, limit_bytes)

    def trim_logs(self) -> None:
        """Nothing to do: the shims trim the logs of what runs."""

    def sweep(self) -> None:
        """Remove folders of creations and removals that were killed half-way."""
        for left in remove_unfinished(self._folders, self._clock.now().timestamp()):
            log.warning("%s was never finished: removed", left)
        self._remove_gone()
        if self._has_groups:
            self._run_groups.sweep(lambda: {each.name for each in self._folders.glob("[!.]*")})

    # ----- folders -----

    def _folder(self, name: str) -> Path:
        return self._folders / name

    def _noted(self) -> Iterator[Noted]:
        for folder in sorted(self._folders.glob("[!.]*")):
            if (noted := Noted.read(folder)) is not None:
                yield noted


def _start_shim(folder: Path, doors: str) -> None:
    """Start the shim, and wait until it has started the program or given up.

    Args:
        folder: The container's.
        doors: The files by which its program joins control groups, with colons between them.
    """
    with (folder / "shim.log").open("ab") as words:
        subprocess.run(
            [sys.executable, "-I", "-S", shim.__file__, str(folder), doors, *_LIBRARIES],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            env={"PATH": notes.SYSTEM_PATH},
            start_new_session=True,
            timeout=_START_TIMEOUT_S,
            check=False,
        )
