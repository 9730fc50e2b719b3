"""What runs on a machine of an engine: starts the program, and leaves in its folder how it went.

It is copied into the shared folder, with `PARTS`, and needs nothing else of headway: the
standard library of Python 3.8 and later. ``wrapper FOLDER`` runs the job of that folder, ``wrapper
FOLDER rank`` its part on one node of several.

It is told by its environment who it is (HEADWAY_JOB, the engine's name for the job;
HEADWAY_MEMBER; HEADWAY_RESTART), and finds in ``request.json`` what to run. HEADWAY_ALONE says that
the engine ends no job gently: then this looks each second whether its user has cancelled it, or its
time is over. It writes ``claim``,
``started.json``, ``log`` and ``ended.json``, each whole or not at all. Whoever comes with another
job's name where there is a claim runs nothing: so a job that an engine took twice runs once.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headway.engine.image_start import KILL_S, Container, in_image
from headway.engine.processes import Gpus, descendants, memory_bytes, out_of_memory_kills

OWN = "own"
PARTS = ("containers", "image_start", "processes")
"""The modules beside this one that it uses."""
EVERY_S = 1.0
"""How often memory is measured."""
TRIES = 30
"""A disk may be full, or a file server away, just when the record is to be written."""
AGAIN_S = 30
"""So long a start that repeats another one waits for the end of that."""
STOPPED = 143
ELSEWHERE = 75
"""Exit code of a job that another one runs already."""


def own(folder: str) -> str:
    """What its job may write in *folder*: a part of it, where that is another user's."""
    place = os.path.join(folder, OWN)
    return place if os.path.isdir(place) else folder


def write(path: str, content: object) -> None:
    """Put *content* at *path*: every reader sees all of it or nothing."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def say(text: str) -> None:
    """Into the engine's own log, which may be on a disk that is full."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def lasting(act: Callable[[], Any], what: str) -> Any:
    """What *act* gives, which is tried again while the folder cannot be written; *what* it is."""
    for _ in range(TRIES):
        try:
            return act()
        except OSError as error:
            say(f"{what} cannot be written: {error}")
            time.sleep(1.0)
    return act()


def claim(folder: str, job: str) -> bool:
    """Whether this *folder* is that job's to run: the first one has it, however often it starts."""
    path = os.path.join(folder, "claim")
    part = f"{path}.{socket.gethostname()}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(job)
    try:
        os.link(part, path)  # a link is made by one of several, on NFS too
    except FileExistsError:
        with open(path) as file:
            return file.read() == job
    finally:
        os.unlink(part)
    return True


def begin(mask: Any) -> None:
    """In the new process: signals as they were, and an end with this one, however that ends."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with suppress(ImportError, AttributeError, OSError):
        import ctypes  # noqa: PLC0415 - not every Python has it

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(
    command: list[str], env: dict[str, str], log: int, folder: str, mask: Any
) -> tuple[subprocess.Popen[bytes] | None, str]:
    """The program as a process, in a group of its own; what is wrong with it instead."""
    where = env.pop("HEADWAY_WORKING_DIR") or folder
    try:
        return subprocess.Popen(
            command,
            env=env,
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: begin(mask),
        ), ""
    except OSError as error:
        return None, f"{command[0]} cannot be started in {where}: {error.strerror}"


def cancelled(folder: str) -> bool:
    """Whether its user asked to end it, alone or with the whole array."""
    places = (folder, os.path.dirname(folder) if os.environ.get("HEADWAY_MEMBER") else folder)
    return any(os.path.exists(os.path.join(each, "cancelled")) for each in places)


def is_over(request: Any, folder: str, found: dict[str, Any], now_s: float) -> bool:
    """Whether it is to be stopped, where the engine sends no signal for that; notes why."""
    if not os.environ.get("HEADWAY_ALONE"):
        return False
    limit_s = request["time_limit_s"]
    found["timed_out"] = limit_s is not None and now_s - found["started_at"] > limit_s
    return found["timed_out"] or cancelled(folder)


def follow(
    program: subprocess.Popen[bytes],
    request: Any,
    folder: str,
    found: dict[str, Any],
    container: Container | None,
) -> None:
    """Wait for the end of *program* and measure it; SIGTERM is passed on, and has its grace."""
    guard = guarded(program, container)
    gpus, waited = Gpus(), {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT}
    before = out_of_memory_kills()
    while program.poll() is None:
        got = signal.sigtimedwait(waited, EVERY_S)
        now_s = time.time()
        asked = got.si_signo != signal.SIGCHLD if got else is_over(request, folder, found, now_s)
        if asked and found["asked_at"] is None:
            found["asked_at"] = now_s
            if container is None or not container.signal(container.inside()[:1], signal.SIGTERM):
                program.send_signal(signal.SIGTERM)  # as containers are stopped: it tells its own
        over_s = now_s - request["grace_s"] - (found["asked_at"] or now_s)
        if found["asked_at"] is not None and over_s >= 0:
            inside = container.inside() if container is not None and over_s < KILL_S else []
            if container is None or not container.signal(inside, signal.SIGKILL):
                kill(program)
        if got is None:
            held = {*descendants(program.pid), *(container.inside() if container else ())}
            found["host_peak_bytes"] = max(found["host_peak_bytes"], memory_bytes(held))
            gpus.look(now_s)
    kill(program)  # what it left behind
    if guard is not None:
        guard.kill()
    code = program.returncode
    if container is not None:
        if container.kill and found["asked_at"] is not None and code == 0:
            code = STOPPED  # Podman's own end, where it was told, too: not the program's
        container.sweep(ended_well=code == 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["host_peak_bytes"] = max(found["host_peak_bytes"], used.ru_maxrss * 1024)
    is_counted = container is None or container.is_child
    found["cpu_s"] = used.ru_utime + used.ru_stime if is_counted else None
    found["gpu_peak_bytes"], found["gpu_utilisation_frac"] = gpus.peak_bytes, gpus.mean()
    found["oom_kills"] = out_of_memory_kills() - before
    found["cancelled"] = cancelled(folder)
    found["exit_code"], found["signal"] = (128 - code, -code) if code < 0 else (code, None)


def guarded(
    program: subprocess.Popen[bytes], container: Container | None
) -> subprocess.Popen[bytes] | None:
    """What ends all of the group of *program* once this is killed, where the engine would not."""
    words = container.kill if container is not None else []
    code = "import os, subprocess, sys; sys.stdin.read(); "
    code += f"{words} and subprocess.call({words}); os.killpg({program.pid}, {signal.SIGKILL:d})"
    with suppress(OSError):  # the program has started, and goes on without
        if os.environ.get("HEADWAY_ALONE") or words:
            words = [sys.executable, "-IS", "-c", code]
            return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    return None


def kill(program: subprocess.Popen[bytes]) -> None:
    """End all of its group that are left."""
    with suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)


def with_python(version: str, env: dict[str, str], folder: str) -> str:
    """Let the program find the Python of that version as python; what is wrong, else empty."""
    found = shutil.which("python" + version, path=env["PATH"])
    if found is None:
        return f"there is no python{version} on {socket.gethostname()}, which its job asks for"
    place = os.path.join(folder, "bin." + socket.gethostname())
    os.makedirs(place, exist_ok=True)
    for name in ("python", "python3"):
        with suppress(FileExistsError):
            os.symlink(found, os.path.join(place, name))
    env["PATH"] = place + ":" + env["PATH"]
    return ""


def environment(request: Any, folder: str) -> dict[str, str]:
    """What the program finds in its environment."""
    env = dict(os.environ)
    env.pop("SLURM_JWT", None)  # it says who submits
    env.update(request["env"])
    env.setdefault("PATH", os.defpath)
    outputs = os.path.join(folder, "outputs")
    os.makedirs(outputs, exist_ok=True)
    env["HEADWAY_OUTPUTS"] = outputs
    env["HEADWAY_WORKING_DIR"] = request["working_dir"]
    if os.environ.get("HEADWAY_MEMBER"):
        env["HEADWAY_ARRAY_INDEX"] = os.environ["HEADWAY_MEMBER"]
    return env


def free_port() -> int:
    """A port of this machine that nobody has now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def filled(text: str, numbers: dict[str, str]) -> str:
    """*text* with {rank} and so on filled in."""
    return re.sub(r"{(\w+)}", lambda name: numbers.get(name[1], name[0]), text)


def as_rank(request: Any, env: dict[str, str]) -> tuple[list[str], str]:
    """The command and the environment of one part of a gang."""
    gang, port = request["gang"], os.environ["HEADWAY_MASTER_PORT"]
    numbers = {
        "rank": os.environ.get(gang["rank_variable"], "0"),
        "world_size": str(gang["nodes"]),
        "local_rank": "0",
        "master": os.environ["HEADWAY_MASTER_ADDR"] + ":" + port,
        "master_addr": os.environ["HEADWAY_MASTER_ADDR"],
        "master_port": port,
    }
    env.update({name: filled(text, numbers) for name, text in gang["env"].items()})
    return [filled(each, numbers) for each in request["command"]], numbers["rank"]


def restarts(folder: str) -> int:
    """How often it was started before, where the engine does not say."""
    said = os.environ.get("HEADWAY_RESTART")
    return int(said or read(folder, "started.json").get("restart", -1) + 1)


def asked(folder: str) -> dict[str, Any]:
    """What is to run there."""
    return read(folder, "job.json") or read(folder, "request.json")


def read(folder: str, name: str) -> dict[str, Any]:
    """A document of *folder*; empty where there is none."""
    with suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
        return dict(json.load(file))
    return {}


def earlier(folder: str) -> dict[str, Any] | None:
    """How it ended when it was started before; None where it was not, or somebody queued it again.

    Then the engine counts one more start. One that has lost its newest memory starts it once more.
    """
    me = os.environ["HEADWAY_JOB"], os.environ.get("HEADWAY_RESTART")
    for _ in range(AGAIN_S):
        found = read(folder, "ended.json") or read(folder, "started.json")
        if not me[1] or (found.get("job"), str(found.get("restart"))) != me:
            return None
        if "ended_at" in found:
            return found
        time.sleep(1.0)
    return None  # it was killed


def exit_code(found: dict[str, Any]) -> int:
    """Of the wrapper. Who was asked to stop has not done what others wait for, whatever it says."""
    return int(found["exit_code"]) or (STOPPED if found["cancelled"] or found["asked_at"] else 0)


def run(folder: str, request: Any, *, is_rank: bool) -> tuple[dict[str, Any], str]:
    """Run it to its end; what is known of it then."""
    mask = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT}
    )
    mine = own(folder)
    found: dict[str, Any] = {"job": os.environ["HEADWAY_JOB"], "restart": restarts(mine)}
    found.update(node=socket.gethostname(), started_at=time.time(), asked_at=None, error="")
    found.update(timed_out=False, cancelled=False, exit_code=None, signal=None, host_peak_bytes=0)
    env: dict[str, str] = lasting(lambda: environment(request, folder), "its folder")
    command, rank = request["command"], "0"
    env["HEADWAY_RESTART"] = str(found["restart"])
    if is_rank:
        command, rank = as_rank(request, env)
    else:
        lasting(lambda: write(os.path.join(mine, "started.json"), found), "that it started")
        if request["gang"]:
            env["HEADWAY_MASTER_ADDR"] = socket.gethostname()
            env["HEADWAY_MASTER_PORT"] = str(free_port())
            if request["gang"]["spread"]:
                part = [sys.executable, "-IS", sys.argv[0], sys.argv[1], "rank"]
                command = [*request["gang"]["spread"], *part]
                if request.get("image"):  # a PATH of the job's is one of its image's
                    env["PATH"] = os.environ.get("PATH", os.defpath)
    if cancelled(folder):
        found.update(cancelled=True, exit_code=143)
    else:
        is_first = rank == "0"
        path = os.path.join(folder if is_first else mine, "log" if is_first else f"log.{rank}")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        log = lasting(lambda: os.open(path, flags, 0o640), "its log")
        version, program, container = request.get("python", ""), None, None
        found["error"] = with_python(version, env, mine) if version else ""
        if request.get("image") and (is_rank or not request["gang"]):
            command, env, container, found["error"] = in_image(request, command, env, folder)
        if not found["error"]:
            program, found["error"] = start(command, env, log, folder, mask)
        if program is None:
            os.write(log, (found["error"] + "\n").encode())
            found["exit_code"] = 127
        else:
            follow(program, request, folder, found, container)
    found["ended_at"] = time.time()
    return found, rank


def main(folder: str, *, is_rank: bool) -> int:
    """Run the job of *folder*; the exit code of its program."""
    request = asked(folder)
    if member := os.environ.get("HEADWAY_MEMBER"):
        folder = os.path.join(folder, member)
        if request["each"]:  # a job of its own, submitted with others
            request = asked(folder)
            sys.argv[1] = folder
            os.environ["HEADWAY_JOB"] += "_" + member
            del os.environ["HEADWAY_MEMBER"]
        else:
            os.makedirs(folder, exist_ok=True)
    mine = own(folder)
    if not is_rank:
        if not lasting(lambda: claim(mine, os.environ["HEADWAY_JOB"]), "whose job this is"):
            say("this job was submitted twice, and another one runs it")
            return ELSEWHERE
        if (before := earlier(mine)) is not None:
            return exit_code(before)
        ended = os.path.join(mine, "ended.json")
        if os.path.exists(ended):  # of a start before
            os.replace(ended, ended + "." + (os.environ.get("HEADWAY_RESTART") or "0"))
    found, rank = run(folder, request, is_rank=is_rank)
    name = f"rank.{rank}.json" if is_rank else "ended.json"
    with suppress(OSError):
        lasting(lambda: write(os.path.join(mine, name), found), "how it ended")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], is_rank=len(sys.argv) > 2))
