"""Whose a process is that is no run's."""

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headway.model.node import GpuProcess
from headway.telemetry.identity import _seen, identified
from headway.telemetry.reading import node_reading, with_owners, with_runs
from tests.ports.clock import FakeClock
from tests.ports.telemetry import FakeGpus, FakeHost

PYTHON = Path(sys.executable).name
WAIT = "import sys; sys.stdin.read()"


@contextmanager
def running(*words: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE) as process:
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_a_process_is_told_with_its_user_its_start_and_no_more_of_its_command_than_needed(
    tmp_path: Path,
) -> None:
    program = tmp_path / "train.py"
    program.write_text(WAIT)
    with running("-u", str(program), "--token", "secret") as pid:
        found = identified(GpuProcess(pid, 5))
    assert (found.pid, found.memory_bytes, found.user) == (pid, 5, getpass.getuser())
    assert found.command == f"{PYTHON} {program}"[:60]
    assert found.since is not None
    assert abs(datetime.now(UTC) - found.since) < timedelta(minutes=5)


def test_code_on_the_command_line_is_not_told() -> None:
    with running("-c", WAIT) as pid:
        assert identified(GpuProcess(pid, None)).command == PYTHON


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/usr/bin/python3.12", "train.py", "--token", "secret"], "python3.12 train.py"),
        (["python", "-u", "-B", "src/train.py", "secret"], "python src/train.py"),
        (["python", "--api-key", "sk-SECRET", "t.py"], "python"),
        (["python", "-u", "-X", "secret", "t.py"], "python"),
        (["serve", "-p", "hunter2"], "serve"),
        (["serve", "-u", "hunter2"], "serve"),
        (["env", "TOKEN=s", "python"], "env"),
        (["bash", "-lc", "export T=s"], "bash"),
        (["/opt/vllm serve --api-key s"], "vllm"),
        (["/opt/vllm: worker --api-key s", ""], "vllm:"),
        (["vllm", "serve", "--api-key", "s"], "vllm serve"),
        (["train\udcff", "x"], "train? x"),
        (["train\n\x1b[2J"], "train"),
        (["\x1b]0;a", "data\udcff"], "?]0;a"),
        (["x" * 100], "x" * 60),
        ([""], "fallen"),
        ([], "fallen"),
    ],
)
def test_of_a_command_nothing_is_told_that_may_be_secret_or_cannot_be_kept(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.Process.cmdline", lambda _: words)
    monkeypatch.setattr("psutil.Process.name", lambda _: "fallen back")
    monkeypatch.setattr("psutil.Process.username", lambda _: f"{'u' * 58}\udcff\0tail")
    _seen.cache_clear()
    found = identified(GpuProcess(os.getpid(), None))
    _seen.cache_clear()
    assert (found.command, found.user) == (told, "u" * 58 + "??")


def test_only_where_the_owners_are_joined_a_process_is_asked_for_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("psutil.Process.username", lambda found: asked.append(found.pid) or "ada")
    gpus = FakeGpus.idle(1)
    with running("-c", WAIT) as pid:
        gpus.show("GPU-0", used_bytes=5, processes=(GpuProcess(pid, 5),))
        assert [each.user for each in with_runs(gpus.read()[0], {}).processes] == [""]
        assert asked == []
        for _ in range(3):
            read = with_owners(node_reading(gpus, FakeHost(), FakeClock()), {}, {})
            (gpu,) = read.gpus or ()
            assert [each.user for each in gpu.processes] == ["ada"]
        assert asked == [pid]


def test_of_one_that_is_gone_nothing_is_told() -> None:
    gone = GpuProcess(2**22 + 1, 7)
    assert identified(gone) == gone
