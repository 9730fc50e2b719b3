"""How the wrapper starts a job's command in its image, and ends what runs in there.

It needs the standard library of Python 3.8 alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import Any

from headway.engine import containers
from headway.engine.processes import descendants

KILL_S = 10.0
"""So long after its grace a container may take to be killed by the program that started it."""
SWEEPS = 30


class Container:
    """What its program runs in, where the job has an image and something else is the parent."""

    def __init__(self, runtime: containers.Runtime, name: str) -> None:
        self.kill, self.ask = runtime.kill(name), runtime.pid(name)
        self.is_child = runtime.is_parent
        self.pid = 0
        with suppress(ImportError, AttributeError, OSError):
            import ctypes  # noqa: PLC0415 - not every Python has it

            ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER

    def inside(self) -> list[int]:
        """Its processes, the first one first; none before it is there."""
        if self.ask and not self.pid:
            said = asked(self.ask)
            self.pid = int(said) if said.isdecimal() else 0
        return descendants(self.pid) if self.pid else []

    def signal(self, pids: list[int], number: int) -> bool:
        """Tell them; whether there are any. A program between might end before them."""
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, number)
        return bool(pids)

    def sweep(self, *, ended_well: bool) -> None:
        """End what is left, and take up what it used; who ended well has removed itself."""
        if self.kill and not ended_well:
            asked(self.kill)
        with suppress(ChildProcessError):
            for _ in range(SWEEPS):
                self.signal(descendants(os.getpid())[1:], signal.SIGKILL)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.05)


def asked(words: list[str]) -> str:
    """What that command says; empty where it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.check_output(words, stderr=subprocess.DEVNULL, timeout=KILL_S)
        return said.decode(errors="replace").strip()
    return ""


def in_image(
    request: Any, command: list[str], env: dict[str, str], folder: str
) -> tuple[list[str], dict[str, str], Container | None, str]:
    """The command and the environment that run that command in its image; or what is wrong."""
    there = containers.found()
    runtime = containers.chosen(there)
    if runtime is None:
        why = containers.none_of(there)
        return command, env, None, f"nothing starts images on {socket.gethostname()}: {why}"
    where = env.pop("HEADWAY_WORKING_DIR") or folder
    # A link leads out of the container.
    env["HEADWAY_OUTPUTS"] = os.path.realpath(env["HEADWAY_OUTPUTS"])
    folders = [containers.Mount(each, each) for each in (where, env["HEADWAY_OUTPUTS"])]
    given = containers.Start(
        request["image"], command, where,
        folders + [containers.Mount(*each) for each in request["mounts"]],
        {name: value for name, value in env.items() if is_jobs(name, request)},
        has_gpus=bool(env.get("CUDA_VISIBLE_DEVICES")),
        name=f"headway-{os.path.basename(folder)}-{socket.gethostname()}-{os.getpid()}",
    )  # fmt: skip
    if given.has_gpus and not runtime.is_parent:
        # Outside of its control group a job's GPUs have other numbers.
        return command, env, None, f"{runtime.program} cannot be told which GPUs are the job's"
    own = {**os.environ, **runtime.variables(given), "HEADWAY_WORKING_DIR": where}
    own.pop("SLURM_JWT", None)
    return runtime.words(given), own, Container(runtime, given.name), ""


def is_jobs(name: str, request: Any) -> bool:
    """Whether a program in an image gets that variable: of its machine's it has no use."""
    told = name in request["env"] or name in ((request["gang"] or {}).get("env") or {})
    return told or name.startswith(("CUDA_", "HEADWAY_", "SLURM_"))
