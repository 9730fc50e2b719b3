"""A program under nsys behaves as it does alone, whatever nsys does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from headway.profile.wrap import wrapper

FAKE = Path(__file__).resolve().parents[1] / "support/fake_nsys.py"
TELLS = """\
import os, signal, sys
print("umask", oct(os.umask(0)), "tmp", os.environ.get("TMPDIR"))
print("int", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print("quit", signal.getsignal(signal.SIGQUIT), "args", sys.argv[1:])
print("an error", file=sys.stderr)
sys.exit(7)
"""
SAVES = """\
import signal, sys, time
seen = []
def save(*_):
    seen.append(1)
    print("term", len(seen), flush=True)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while not seen:
    time.sleep(0.05)
time.sleep(1.5)   # a second signal would be seen
sys.exit(5)
"""
MODES = ("works", "refuses", "dies", "silent", "missing")


@dataclass
class Ended:
    code: int
    out: str
    err: str
    folder: Path
    seconds: float


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    def go(
        mode: str,
        program: str,
        *arguments: str,
        stop: str = "",
        grace_s: float = 10,
        after: str = "ready",
    ) -> Ended:
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        if mode not in {"missing", "unwrapped"} and not (tools / "nsys").exists():
            (tools / "nsys").symlink_to(FAKE)
        folder = tmp_path / "profile-1"
        words = () if mode == "unwrapped" else wrapper(str(folder), grace_s)
        command = [*words, sys.executable, "-c", program, *arguments]
        python = Path(sys.executable).parent
        env = {"PATH": f"{tools}:{python}:/usr/bin:/bin", "FAKE_NSYS": mode, "TMPDIR": "/var/tmp"}
        out, err = tmp_path / "out", tmp_path / "err"
        started_s = time.monotonic()
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                command, env=env, stdout=to_out, stderr=to_err, start_new_session=True
            )
            if stop:
                while after not in out.read_text():
                    assert time.monotonic() < started_s + 30
                    time.sleep(0.05)
                started_s = time.monotonic()
                (os.killpg if stop == "group" else os.kill)(process.pid, signal.SIGTERM)
            code = process.wait(60)
        seconds = time.monotonic() - started_s
        return Ended(code, out.read_text(), err.read_text(), folder, seconds)

    yield go
    end_profilers(tmp_path / "tools" / "nsys")  # a container would end them with itself


def end_profilers(nsys: Path) -> None:
    for process in psutil.process_iter(["cmdline"]):
        if str(nsys) in (process.info["cmdline"] or ()):
            process.kill()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_but_its_speed_tells_of_the_profiler(run: Run, mode: str) -> None:
    alone = run("unwrapped", TELLS, "a b", "$HOME", "'\"")
    wrapped = run(mode, TELLS, "a b", "$HOME", "'\"")
    assert (wrapped.code, wrapped.out, wrapped.err) == (7, alone.out, alone.err)
    assert "int True" in alone.out


@pytest.mark.parametrize("mode", ["works", "dies"])
def test_a_program_killed_by_a_signal_says_so(run: Run, mode: str) -> None:
    suicide = "import os, signal, time; time.sleep(1); os.kill(os.getpid(), signal.SIGSEGV)"
    assert run(mode, suicide).code == 128 + signal.SIGSEGV


@pytest.mark.parametrize("stop", ["main", "group"])
@pytest.mark.parametrize("mode", ["works", "dies", "refuses"])
def test_a_stop_reaches_the_program_once(run: Run, mode: str, stop: str) -> None:
    ended = run(mode, SAVES, stop=stop)
    assert (ended.code, ended.out, ended.err) == (5, "ready\nterm 1\n", "")


def test_a_profiler_that_hangs_has_no_more_than_the_grace_time(run: Run) -> None:
    ended = run("hangs", SAVES, stop="main", grace_s=6)
    assert ended.code == 5
    assert ended.seconds < 6


def test_a_program_that_obeys_at_once_ends_as_it_would_alone(run: Run) -> None:
    simple = "import time; print('ready', flush=True); time.sleep(60)"
    assert run("works", simple, stop="main").code == 128 + signal.SIGTERM


def test_the_report_and_no_debris_are_left(run: Run) -> None:
    ended = run("works", "")
    names = {path.name for path in ended.folder.iterdir()}
    assert names == {"report.sqlite", "report.nsys-rep", "nsys.log"}
    assert "collecting" in (ended.folder / "nsys.log").read_text()


def test_without_nsys_there_is_no_folder(run: Run) -> None:
    assert not run("missing", "").folder.exists()


def test_an_earlier_report_is_not_taken_for_this_one(run: Run) -> None:
    run("works", "")
    assert not (run("silent", "").folder / "report.sqlite").exists()
