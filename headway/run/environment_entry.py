"""Makes the environment of a run's requirements, or starts a program in it, inside a container.

It runs by the image's own Python, with ``-I``, so that nothing of the job's folder is imported.
Nothing but the standard library is there.

    environment_entry.py make FOLDER REQUIREMENTS GIVEN UV
    environment_entry.py enter FOLDER COMMAND…

FOLDER gets, or has, `environment`. GIVEN has what headway read in the job's file REQUIREMENTS, in a
file of its own, and the wheels that it leads to. A container that makes one starts nothing of the
job, and has another user than the programs that start in it.
"""

import compileall
import os
import re
import ssl
import subprocess
import sys
from pathlib import Path

_MOST_CHARACTERS = 400
_CAUSE, _HINT = "\n  cause: ", "\nhint: "
"""How uv begins what has led to an error, each of the other, and what may help."""
_AWAY = re.compile(r"(?i)failed to fetch|connect|certificate|timed out|dns error")
_SITES = (
    ". Index, proxy and certificates of all runs are the operators' to set, in `outside` of "
    "headway-container-policy/site: ask {}. `env` of the job can name others"
)
MAKING, MADE = "making the environment", "the environment is made"
"""What the log says, by which who follows the run knows that it trains not yet."""


def main(arguments: list[str]) -> None:
    """Make the environment, or become the program that starts in it."""
    role, folder, *rest = arguments
    environment = Path(folder, "environment")
    if role == "make":
        _make(environment, *rest)
    else:
        _enter(environment, rest)


def _make(environment: Path, requirements: str, given: str, uv: str) -> None:
    _say(f"{MAKING} of {requirements}; runs after this one find it here")
    into = ["--python", str(environment / "bin" / "python")]
    files = ["--requirements", "requirements.txt"]
    if Path(given, "constraints.txt").stat().st_size:
        files += ["--constraints", "constraints.txt"]
    for words in (
        ["venv", "--quiet", "--python", sys.executable, str(environment)],
        ["pip", "install", *into, "--no-build", "--link-mode", "copy", *files],
    ):
        told: list[str] = []
        own = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        own["TMPDIR"] = str(environment.parent)  # what it downloads is moved from there
        if Path(ssl.get_default_verify_paths().openssl_cafile).is_file():
            own["UV_SYSTEM_CERTS"] = "1"  # whom the image trusts, beside whom uv does
        begun = [uv, *words, "--no-config", "--no-cache"]
        with subprocess.Popen(
            begun, cwd=given, env={**os.environ, **own}, stderr=subprocess.PIPE, text=True
        ) as maker:
            for line in maker.stderr or ():
                told.append(line)
                if not any(map(_begins, told)):  # what went wrong is told once, in the end
                    sys.stderr.write(line)
        if maker.returncode:
            why, hint = cause(told), _hint(told)
            sys.stderr.write(hint)
            whom = os.environ.get("HEADWAY_CONTACT") or "an operator"
            sites = _SITES.format(whom) if _AWAY.search(why) else ""
            _say(f"no environment from {requirements}: {why}{sites}")
            sys.exit(1)
    # By the image's Python: that of the environment runs what its packages put into .pth files.
    workers = int(os.environ.get("OMP_NUM_THREADS", "1"))
    compileall.compile_dir(environment / "lib", quiet=2, workers=workers)
    _say(MADE)


def _enter(environment: Path, command: list[str]) -> None:
    os.environ["VIRTUAL_ENV"] = str(environment)
    os.environ["PATH"] = os.pathsep.join([f"{environment}/bin", os.environ.get("PATH", os.defpath)])
    try:
        os.execvp(command[0], command)  # noqa: S606 - the program itself, no shell
    except OSError as error:
        sys.stderr.write(f"headway: {command[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def cause(told: list[str]) -> str:
    """What uv says of a failure, on one line: it begins with its last error."""
    begins = [number for number, line in enumerate(told) if _begins(line)]
    whole = "".join(told[begins[-1] if begins else 0 :]).split(_HINT)[0]
    first, *causes = whole.split(_CAUSE)
    words = " ".join([first.rstrip(), *causes[-1:]]).split()  # those between say how, not what
    text = " ".join(word for word in words if set(word) - set("×╰─▶├│")).removeprefix("error: ")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _begins(line: str) -> bool:
    return line.lstrip().startswith(("×", "error"))


def _hint(told: list[str]) -> str:
    found = "".join(told).partition(_HINT)
    return f"hint: {found[2]}" if found[1] else ""


def _say(what: str) -> None:
    sys.stderr.write(f"headway: {what}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
