"""What runs in the containers: the maker of an environment, and what becomes the program in it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from headway.run import environment_entry
from headway.run.environment_entry import cause
from tests.support.small_wheel import small_wheel

PROGRAM = "import small, sys; print(small.WORD, sys.prefix)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given = tmp_path / "given"
    given.mkdir()
    small_wheel(given, "small")
    (given / "requirements.txt").write_text("--no-index\n--find-links .\nsmall==1.0\n")
    (given / "constraints.txt").touch()
    place = tmp_path / "made"
    place.mkdir()
    return place


def told(role: str, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    script = Path(environment_entry.__file__).read_text()
    words = [sys.executable, "-I", "-c", script, role, str(folder), *more]
    beside = folder.parent / "code"  # of the job: nothing of it is imported
    beside.mkdir(exist_ok=True)
    (beside / "json.py").write_text("raise SystemExit('imported')")
    return subprocess.run(words, check=False, cwd=beside, capture_output=True, text=True)


def made(folder: Path) -> "subprocess.CompletedProcess[str]":
    return told("make", folder, "my.txt", str(folder.parent / "given"), find_uv_bin())


def test_a_program_starts_in_what_was_made(folder: Path) -> None:
    done = made(folder)
    assert done.returncode == 0, done.stderr
    assert "making the environment of my.txt" in done.stderr
    assert "small==1.0" in done.stderr
    assert list(folder.glob("environment/lib/*/site-packages/__pycache__/small.*.pyc"))
    # The program's own folder is its, from here on.
    (folder.parent / "code" / "json.py").unlink()
    done = told("enter", folder, "python", "-c", PROGRAM)
    assert done.stdout == f"small 1.0 {folder}/environment\n", done.stderr
    assert told("enter", folder, "small").stdout == "script of small 1.0\n"
    assert told("enter", folder, "no-such-program").returncode == 127


def test_a_package_that_is_not_to_be_had_is_named(folder: Path) -> None:
    (folder.parent / "given" / "requirements.txt").write_text("--no-index\nno-such-package>=2\n")
    done = made(folder)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("headway: no environment from my.txt: No solution found")
    assert "no-such-package" in last
    assert done.stderr.count("no-such-package was not found") == 1


def test_of_an_index_that_does_not_answer_it_is_said_who_names_another(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        index = f"http://127.0.0.1:{taken.getsockname()[1]}/simple"
    lines = f"--index-url {index}\nno-such-package\n"
    (folder.parent / "given" / "requirements.txt").write_text(lines)
    last = made(folder).stderr.splitlines()[-1]
    assert "no environment from my.txt: " in last
    assert "Index, proxy and certificates of all runs are the operators' to set" in last
    assert "ask an operator." in last


def test_nothing_of_a_package_runs_while_it_is_installed(folder: Path) -> None:
    given, ran = folder.parent / "given", folder.parent / "ran"
    evil = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    small_wheel(given, "small", more={"evil.pth": evil, "sitecustomize.py": evil})
    assert made(folder).returncode == 0
    assert not ran.exists()
    told("enter", folder, "python", "-c", "")
    assert ran.exists()


def test_the_cause_is_one_line() -> None:
    told = ["Using Python\n", "  × Failed to build `foo==1.0`\n", "  ├─▶ It\n", "  ╰─▶ died\n"]
    assert cause(told) == "Failed to build `foo==1.0` It died"
    assert cause(["Killed\n"]) == "Killed"
    chain = ["error: Failed to fetch: x\n", "  cause: sending\n", "  cause: UnknownIssuer\n"]
    assert cause([*chain, "\n", "hint: more\n"]) == "Failed to fetch: x UnknownIssuer"
    assert len(cause(["error: " + "x" * 1000])) == 401
