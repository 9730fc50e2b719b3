"""Puts each seeded bug into a copy of the code and runs the tests that must find it.

    python -m tests.seeded_bugs [WORD …]      (only bugs with one of the words in their name)

Prints a row for each; the exit status is 1 where a bug was found by no test.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.seeded_bugs.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 900


def main() -> int:
    """Try every bug; print what became of it."""
    words = sys.argv[1:]
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    print("| seeded bug | found by | s |\n|---|---|---|", flush=True)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="headway-bugs-") as folder:
        copy = Path(folder) / "tree"
        _copy(copy)
        for bug in chosen:
            begun = time.perf_counter()
            found = _found(copy, bug)
            missed += not found
            shown = ", ".join(found) or "**NOTHING**"
            print(f"| {bug.name} | {shown} | {time.perf_counter() - begun:.0f} |", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} seeded bugs were found")
    return int(missed > 0)


def _copy(to: Path) -> None:
    """What git knows of the tree, and what it would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def _found(copy: Path, bug: Bug) -> list[str]:
    """The tests that fail with *bug*; the copy is as before at the end."""
    file = copy / bug.file
    well = file.read_text()
    if well.count(bug.old) != 1:
        raise SystemExit(f"{bug.name}: its old text is not exactly once in {bug.file}")
    file.write_text(well.replace(bug.old, bug.new))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider",
             "--no-header", *bug.tests],
            cwd=copy, check=False, capture_output=True, text=True, timeout=LONGEST_S,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"a test that did not end within {LONGEST_S} s"]
    finally:
        file.write_text(well)
    marks = ("FAILED ", "ERROR ")
    failed = [line for line in done.stdout.splitlines() if line.startswith(marks)]
    if done.returncode not in (0, 1):
        raise SystemExit(f"{bug.name}: the tests did not run\n{done.stdout}\n{done.stderr}")
    return [f"`{line.split(' ', 1)[1].split(' - ')[0]}`" for line in failed]


if __name__ == "__main__":
    sys.exit(main())
