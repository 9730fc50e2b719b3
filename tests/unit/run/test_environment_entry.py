"""What runs in the container: makes the environment, or finds it, and becomes the program."""

import fcntl
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
    place = tmp_path / "environment"
    (place / "made").mkdir(parents=True)
    (place / "lock").touch()
    small_wheel(tmp_path, "small")
    (tmp_path / "requirements.txt").write_text("--no-index\n--find-links .\nsmall==1.0\n")
    return place


def words(folder: Path, *command: str, uv: str = "") -> list[str]:
    script = Path(environment_entry.__file__).read_text()
    cache = str(folder.parent / "cache")
    start = [sys.executable, "-c", script, str(folder), "requirements.txt"]
    return [*start, uv or find_uv_bin(), cache, *command]


def entered(folder: Path, *command: str, uv: str = "") -> subprocess.CompletedProcess[str]:
    asked = words(folder, *command, uv=uv)
    return subprocess.run(asked, check=False, cwd=folder.parent, capture_output=True, text=True)


def test_it_is_made_once_and_found_afterwards(folder: Path) -> None:
    done = entered(folder, "python", "-c", PROGRAM)
    assert done.stdout == f"small 1.0 {folder}/made/environment\n", done.stderr
    assert "making the environment of requirements.txt" in done.stderr
    assert "small==1.0" in done.stderr
    # Now without anything that could make it; a command that a package brought is found, too.
    assert entered(folder, "small", uv="/nowhere").stdout == "script of small 1.0\n"


def test_a_package_that_is_not_to_be_had_is_named(folder: Path) -> None:
    (folder.parent / "requirements.txt").write_text("--no-index\nno-such-package>=2\n")
    done = entered(folder, "true")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("headway: no environment from requirements.txt: No solution found")
    assert "no-such-package" in last
    assert not (folder / "made/ready").exists()


def test_of_an_index_that_does_not_answer_it_is_said_who_names_another(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        index = f"http://127.0.0.1:{taken.getsockname()[1]}/simple"
    (folder.parent / "requirements.txt").write_text(f"--index-url {index}\nno-such-package\n")
    (folder.parent / "cache").mkdir(exist_ok=True)
    last = entered(folder, "true").stderr.splitlines()[-1]
    assert "no environment from requirements.txt: " in last
    assert "An operator names index, proxy and certificates" in last


def test_what_was_left_half_made_is_made_anew(folder: Path) -> None:
    (folder / "made/environment").mkdir()
    (folder / "made/environment/junk").touch()
    assert entered(folder, "small").stdout == "script of small 1.0\n"
    assert not (folder / "made/environment/junk").exists()


def test_a_second_one_waits_for_who_makes_it(folder: Path) -> None:
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = subprocess.Popen(
            words(folder, "small"), cwd=folder.parent, text=True,
            stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert begun.stderr is not None
        assert "another run makes the environment" in begun.stderr.readline()
    out, _ = begun.communicate(timeout=100)
    assert out == "script of small 1.0\n"


def test_a_program_holds_the_lock_until_its_end(folder: Path) -> None:
    entered(folder, "true")
    running = subprocess.Popen(
        words(folder, "sh", "-c", "echo in; read line"), cwd=folder.parent, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == "in\n"
    with (folder / "lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        running.communicate("go\n", timeout=100)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_image_with_another_python_is_told_so(folder: Path) -> None:
    (folder / "made/ready").write_text("3.2")
    done = entered(folder, "true")
    assert done.returncode == 1
    assert "was made with 3.2: name the image by a tag that stays" in done.stderr


def test_a_program_that_is_not_there_ends_as_a_shell_would_say(folder: Path) -> None:
    (folder / "made/ready").write_text(environment_entry._python())
    assert entered(folder, "no-such-program").returncode == 127


def test_the_cause_is_one_line() -> None:
    told = ["Using Python\n", "  × Failed to build `foo==1.0`\n", "  ├─▶ It\n", "  ╰─▶ died\n"]
    assert cause(told) == "Failed to build `foo==1.0` It died"
    assert cause(["Killed\n"]) == "Killed"
    assert len(cause(["error: " + "x" * 1000])) == 401
