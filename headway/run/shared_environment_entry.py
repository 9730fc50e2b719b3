"""Starts a program of an engine's job in the environment of its requirements, made where it is not.

It runs on a machine of the engine by that machine's Python 3.9 or later, with ``-I``, and the
standard library alone: ``shared_environment_entry.py FOLDER REQUIREMENTS UV COMMAND…``. FOLDER is
on the folder that all machines share, has ``given`` and ``entry.py``, and gets, for each Python:

    x86_64-3.11-glibc2.36/lock     held by the job that makes it; others wait
    x86_64-3.11-glibc2.36/made     which of the folders beside it is whole
    x86_64-3.11-glibc2.36/JOB.PID  what a job has made, or was killed over
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

_NO_LOCK = (
    "headway: no file can be locked in {} on {} ({}), and without that two jobs may make the same "
    "environment; nothing was started. Ask for that file system to be mounted there with -o flock"
)


def main(folder: Path, requirements: str, uv: str, *command: str) -> None:
    """Become the program; its exit code is 1 where there is no environment for it."""
    # The Python itself: what leads to it may lie in the job's own folder, which goes with the job.
    entry, python = str(folder / "entry.py"), [os.path.realpath(sys.executable), "-I"]
    library = "".join(platform.libc_ver())  # wheels are for one, or a later one
    place = folder / "{}-{}.{}-{}".format(platform.machine(), *sys.version_info[:2], library)
    place.mkdir(exist_ok=True)
    with (place / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            sys.exit(_NO_LOCK.format(place, platform.node(), error.strerror))
        note = place / "made"
        if not note.exists():
            for left in place.iterdir():  # of a job that was killed over it
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
            made = place / "{}.{}".format(os.environ.get("HEADWAY_JOB", "job"), os.getpid())
            made.mkdir()
            variables = json.loads((folder / "variables.json").read_text())
            words = [entry, "make", str(made), requirements, str(folder / "given"), uv]
            env = {**os.environ, **variables, "HOME": str(made)}
            if subprocess.run([*python, *words], env=env, check=False).returncode:
                sys.exit(1)
            part = place / "made.part"
            part.write_text(made.name)
            part.replace(note)
        found = str(place / note.read_text())
    os.execv(python[0], [*python, entry, "enter", found, *command])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
