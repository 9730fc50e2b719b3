"""The programs that start images on a machine of an engine: which are there, and what each is told.

It lies beside `wrapper` in the shared folder and needs the standard library of Python 3.8 alone;
run by itself it prints what `found` finds. Each program runs as the job's user, never as root, with
the network and the processes of its machine; a container has those variables that it is given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_LOOK_S = 30.0
_AS_ROOT = "jobs run as root there, and root starts no images"
_FILE = (
    'file=$1; part=$file.$(hostname).$$; mkdir -p "${file%/*}"; '
    '[ -e "$file" ] || { enroot import -o "$part" "$2" && mv "$part" "$file"; } || exit; '
    'shift 2; exec enroot start "$@"'
)
"""In sh: have the image *2* as the file *1*, then start what follows."""


_LOADERS = (
    *("LD_", "XDG_", "DOCKER_", "CONTAINER", "STORAGE_", "REGISTRY_", "ENROOT_", "PODMAN_"),
    *("BUILDAH_", "DBUS_", "NOTIFY_SOCKET"),
)


class Mount(NamedTuple):
    """A folder of the machine, as the program finds it."""

    source: str
    target: str
    read_only: bool = False

    def bound(self) -> str:
        """As most of the programs want it."""
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


class Start(NamedTuple):
    """What is to be started."""

    image: str
    """Its full name: registry/repository:tag."""
    command: Sequence[str]
    working_dir: str
    mounts: Sequence[Mount]
    env: Mapping[str, str]
    """The program's, beside what its image sets."""
    has_gpus: bool
    name: str
    """Of the container."""


class Runtime:
    """A program that starts images. A command is a list of words."""

    program: str
    look: Sequence[str]
    """The command whose answer says whether it does."""

    mend: Sequence[str] = ()
    """The command that has `look` answer again where it asks for it, after all was killed."""
    is_parent = True
    """Its containers are the job's: what they use is counted, and the job's GPUs are theirs."""

    def why_not(self, said: str) -> str:
        """Why it starts none, by the answer to `look`; empty where it does."""
        return "" if said else "it does not tell its version"

    def words(self, start: Start) -> list[str]:
        """The command that starts it."""
        raise NotImplementedError

    def variables(self, start: Start) -> dict[str, str]:
        """Of that command itself: the container takes over those that `_named` has."""
        return {name: value for name, value in start.env.items() if not _is_loaders(name)}

    def kill(self, _name: str) -> list[str]:
        """The command that kills and removes the container of that name.

        Empty: it ends with the first one.
        """
        return []

    def pid(self, _name: str) -> list[str]:
        """The command that tells its first process; empty: it descends from the first command."""
        return []


class Apptainer(Runtime):
    """Apptainer, or Singularity, from which it comes."""

    def __init__(self, program: str, prefix: str) -> None:
        """By that name, with that *prefix* before the names of a container's variables."""
        self.program, self._prefix = program, prefix
        self.look = (program, "version")

    def words(self, start: Start) -> list[str]:
        """See `Runtime`."""
        given = [self.program, "exec", "--cleanenv", "--no-home", f"--pwd={start.working_dir}"]
        given += ["--nv"] if start.has_gpus else []
        given += [f"--bind={each.bound()}" for each in start.mounts]
        return [*given, f"docker://{start.image}", *start.command]

    def variables(self, start: Start) -> dict[str, str]:
        """See `Runtime`."""
        return {self._prefix + name: value for name, value in start.env.items()}


class Enroot(Runtime):
    """Enroot, which Pyxis calls, too: each image becomes a file, once, in the user's home."""

    program, look = "enroot", ("enroot", "version")

    def words(self, start: Start) -> list[str]:
        """See `Runtime`."""
        registry, _, rest = start.image.partition("/")
        uri = f"docker://{rest}" if registry == "docker.io" else f"docker://{registry}#{rest}"
        name = start.image.replace("/", "+").replace(":", "+") + ".sqsh"
        file = str(Path.home() / ".cache" / "headway" / name)
        given = ["sh", "-c", _FILE, "sh", file, uri, "--rw", *_named(start)]
        for each in start.mounts:
            how = ":none:rbind,ro,x-create=auto" if each.read_only else ""
            given.append(f"--mount={each.source}:{each.target}{how}")
        there = ("sh", "-c", 'cd "$0" && exec "$@"', start.working_dir)
        return [*given, file, *there, *start.command]

    def variables(self, start: Start) -> dict[str, str]:
        """See `Runtime`."""
        gpus = "all" if start.has_gpus else "void"
        return {**super().variables(start), "NVIDIA_VISIBLE_DEVICES": gpus}


class Podman(Runtime):
    """Podman without root. Its containers are children of the job, and not of its command."""

    program, look = "podman", ("podman", "info", "--format={{.Host.Security.Rootless}}")
    mend: Sequence[str] = ("podman", "system", "migrate")
    _gpus = "--device=nvidia.com/gpu=all"  # which of them CUDA_VISIBLE_DEVICES says

    def why_not(self, said: str) -> str:
        """See `Runtime`."""
        return "" if said == "true" else "it runs as root"

    def words(self, start: Start) -> list[str]:
        """See `Runtime`.

        Inside it is root, which is the job's user outside: who mounts as another one finds folders
        on NFS closed. As process 1 it would be deaf to SIGTERM, so it is none.
        """
        given = [self.program, "run", "--rm", f"--name={start.name}", "--log-driver=none"]
        given += ["--user=0:0", "--cap-drop=all", "--security-opt=no-new-privileges"]
        given += ["--security-opt=label=disable", "--network=host", "--pid=host"]
        given += ["--volume=/dev/shm:/dev/shm", "--entrypoint="]
        given += [self._gpus] if start.has_gpus else []
        given += [f"--volume={each.bound()}" for each in start.mounts]
        given += [*_named(start), f"--workdir={start.working_dir}"]
        return [*given, start.image, *start.command]

    def kill(self, name: str) -> list[str]:
        """See `Runtime`."""
        return ["sh", "-c", '"$0" kill "$1"; "$0" rm --force "$1"', self.program, name]

    def pid(self, name: str) -> list[str]:
        """See `Runtime`."""
        return [self.program, "inspect", "--format={{.State.Pid}}", name]


class Docker(Podman):
    """A Docker service of the user's own: its containers are the service's children."""

    program, look = "docker", ("docker", "info", "--format={{.SecurityOptions}}")
    mend, is_parent = (), False

    def why_not(self, said: str) -> str:
        """See `Runtime`: who may speak to a service of root's is root."""
        return "" if "rootless" in said else "its service runs as root"


RUNTIMES: Sequence[Runtime] = (
    Apptainer("apptainer", "APPTAINERENV_"),
    Apptainer("singularity", "SINGULARITYENV_"),
    Enroot(),
    Podman(),
    Docker(),
)
"""In the order in which they are chosen."""


def found() -> dict[str, str]:
    """By name, of those that are here: why they start no images for this user; empty: it does.

    None is looked at after the first that does.
    """
    there: dict[str, str] = {}
    for each in RUNTIMES:
        if shutil.which(each.program):
            there[each.program] = _looked(each)
            if not there[each.program]:
                break
    return there


def chosen(there: Mapping[str, str]) -> Runtime | None:
    """The first that starts images, of those that `found` has found."""
    return next((each for each in RUNTIMES if there.get(each.program) == ""), None)


def none_of(there: Mapping[str, str]) -> str:
    """What is there in its place, as a sentence."""
    known = "; ".join(f"{name}: {why}" for name, why in sorted(there.items()))
    return known or f"none of {', '.join(each.program for each in RUNTIMES)} is there"


def _looked(runtime: Runtime) -> str:
    if os.geteuid() == 0:
        return _AS_ROOT
    try:
        done = _run(runtime.look)
        if done.returncode and runtime.mend and " ".join(runtime.mend).encode() in done.stderr:
            _run(runtime.mend)
            done = _run(runtime.look)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode:
        said = done.stderr.decode(errors="replace").split("\n")
        return (next(filter(None, reversed(said)), "") or f"exit code {done.returncode}")[:200]
    return runtime.why_not(done.stdout.decode(errors="replace").strip())


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LOOK_S, check=False
    )


def _is_loaders(name: str) -> bool:
    """Whether that variable would change the program that starts the image."""
    return name in ("PATH", "HOME", "TMPDIR") or name.startswith(_LOADERS)


def _named(start: Start) -> list[str]:
    """The variables, by name alone where the command itself has them: others see its words."""
    return [
        f"--env={name}={value}" if _is_loaders(name) else f"--env={name}"
        for name, value in start.env.items()
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(found()))
