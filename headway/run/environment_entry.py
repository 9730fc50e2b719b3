"""Starts a program in the environment of its requirements, which it makes where there is none yet.

It runs inside the container, by the image's own Python, as the team's user and within the run's
limits. Nothing but the standard library is there.

    environment_entry.py FOLDER REQUIREMENTS UV CACHE COMMAND…

FOLDER has `lock`, and once it is made, `made/environment` and `made/ready`, which says for which
Python. Who makes it holds the lock alone; a program that uses it shares the lock until its end, so
that nobody removes the folder under it.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

_MOST_CHARACTERS = 400
_AWAY = re.compile(r"(?i)failed to fetch|connect|certificate|timed out|dns error")
_SITES = (
    ". An operator names index, proxy and certificates for all runs in `environment` of "
    "headway-container-policy/site, a job in `env`"
)
MAKING, MADE = "making the environment", "the environment is made"
"""What the log says, by which who follows the run knows that it trains not yet."""


def main(arguments: list[str]) -> None:
    """Have the environment, then become the program."""
    folder, requirements, uv, cache, *command = arguments
    lock = os.open(Path(folder, "lock"), os.O_RDONLY)
    os.set_inheritable(lock, True)
    environment, ready = Path(folder, "made/environment"), Path(folder, "made/ready")
    if not ready.exists():
        _wait_for(lock)
        if not ready.exists():  # the one who held it has not made it
            _say(f"{MAKING} of {requirements}; runs after this one find it here")
            _make(environment, requirements, uv, cache)
            os.sync()  # a loss of power must not leave the note alone, and files without content
            part = ready.with_suffix(".part")
            part.write_text(_python())
            part.replace(ready)
            _say(MADE)
    fcntl.flock(lock, fcntl.LOCK_SH)
    made_for = ready.read_text()
    if made_for != _python():
        _give_up(
            f"the image has Python {_python()}, but the environment of {requirements} was made "
            f"with {made_for}: name the image by a tag that stays, such as python:3.11"
        )
    os.environ["VIRTUAL_ENV"] = str(environment)
    os.environ["PATH"] = os.pathsep.join([f"{environment}/bin", os.environ.get("PATH", os.defpath)])
    try:
        os.execvp(command[0], command)  # noqa: S606 - the program itself, no shell
    except OSError as error:
        sys.stderr.write(f"headway: {command[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _wait_for(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("another run makes the environment; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _make(environment: Path, requirements: str, uv: str, cache: str) -> None:
    """Make it anew, whatever one that broke off has left."""
    shutil.rmtree(environment, ignore_errors=True)
    given = {**os.environ, "UV_CACHE_DIR": cache, "UV_LINK_MODE": "copy"}
    given |= {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    into = ["--python", str(environment / "bin" / "python")]
    for words in (
        ["venv", "--quiet", "--python", sys.executable, str(environment)],
        ["pip", "install", *into, "--compile-bytecode", "--requirements", requirements],
    ):
        told: list[str] = []
        with subprocess.Popen([uv, *words], env=given, stderr=subprocess.PIPE, text=True) as maker:
            for line in maker.stderr or ():
                sys.stderr.write(line)
                told.append(line)
        if maker.returncode:
            why = cause(told)
            _give_up(f"no environment from {requirements}: {why}{_SITES * bool(_AWAY.search(why))}")


def cause(told: list[str]) -> str:
    """What uv says of a failure, on one line: it begins with its last error."""
    begins = [
        number for number, line in enumerate(told) if line.lstrip().startswith(("×", "error"))
    ]
    words = " ".join(told[begins[-1] if begins else 0 :]).split()
    text = " ".join(word for word in words if set(word) - set("×╰─▶├│")).removeprefix("error: ")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _say(what: str) -> None:
    sys.stderr.write(f"headway: {what}\n")
    sys.stderr.flush()


def _give_up(why: str) -> None:
    _say(why)
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
