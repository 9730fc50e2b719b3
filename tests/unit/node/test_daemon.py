"""The record by which a daemon of this node is found again."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from headway.node import daemon as module
from headway.node.daemon import SILENT_S, Daemon
from tests.ports.clock import FakeClock
from tests.support.site import wait_for


def test_a_record_that_is_written_anew_is_read_whole(tmp_path: Path) -> None:
    """A worker writes down who it is while `headway up` looks whether it lives."""
    daemon = Daemon("worker", tmp_path)
    daemon.claim()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            daemon.claim()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [daemon.process() for _ in range(500)]
    finally:
        stop.set()
        writer.join()
    assert {process.pid if process is not None else None for process in seen} == {os.getpid()}
    assert [path.name for path in tmp_path.iterdir()] == ["worker.json"]


NEGLECTFUL = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_what_has_ended_is_stopped_though_its_parent_does_not_ask_how(tmp_path: Path) -> None:
    """It stays a zombie, which no signal ends."""
    with subprocess.Popen([sys.executable, "-c", NEGLECTFUL], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        record = {"pid": process.pid, "created": process.create_time()}
        (tmp_path / "guard.json").write_text(json.dumps(record))
        daemon = Daemon("guard", tmp_path)
        assert daemon.process() is not None
        assert daemon.stop(signal.SIGTERM, 10.0)
        assert daemon.process() is None
        assert process.status() == psutil.STATUS_ZOMBIE
        parent.kill()


def test_who_starts_it_leaves_no_zombie(tmp_path: Path) -> None:
    daemon = Daemon("worker", tmp_path)
    process = daemon.start([sys.executable, "-c", "pass"], os.environ)
    process.wait(60)
    assert not psutil.pid_exists(process.pid)


def test_one_that_was_stopped_is_seen_to_be_and_killed_for_another(tmp_path: Path) -> None:
    daemon, said = Daemon("worker", tmp_path), list[str]()
    process = daemon.start([sys.executable, "-c", "import time; time.sleep(600)"], os.environ)
    assert (daemon.frozen(), daemon.runs(said.append), said) == ("", True, [])
    process.suspend()
    wait_for(daemon.frozen, lambda: "it is not seen to be stopped")
    assert daemon.frozen() == f"process {process.pid} was stopped (SIGSTOP)"
    assert not daemon.runs(said.append)
    assert "the worker does nothing: process" in said[0]
    assert not process.is_running()


def test_one_that_was_stopped_leaves_when_it_is_told_to(tmp_path: Path) -> None:
    daemon = Daemon("worker", tmp_path)
    program = "import signal as s; s.signal(s.SIGINT, lambda *_: open('left', 'w') and exit()); "
    program += "open('there', 'w'); s.pause()"
    process = daemon.start([sys.executable, "-c", program], os.environ, cwd=tmp_path)
    wait_for((tmp_path / "there").exists, lambda: "it did not start")
    process.suspend()
    wait_for(daemon.frozen, lambda: "it is not seen to be stopped")
    assert daemon.stop(signal.SIGINT, 60.0)
    assert (tmp_path / "left").exists()


def test_one_that_has_not_beaten_for_long_hangs_and_one_that_never_has_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    clock.sleep(1000.0)
    monkeypatch.setattr(module, "SystemClock", lambda: clock)
    daemon = Daemon("guard", tmp_path)
    daemon.beat()  # `headway down` was faster
    assert daemon.silent_s() == 0.0
    daemon.claim()
    clock.sleep(SILENT_S)
    assert (daemon.silent_s(), daemon.frozen()) == (0.0, "")
    daemon.beat()
    clock.sleep(SILENT_S - 1.0)
    assert daemon.frozen() == ""
    clock.jump(864_000.0)
    assert daemon.frozen() == ""
    clock.sleep(1.0)
    assert daemon.frozen() == f"process {os.getpid()} has hung for 1 min"
    daemon.beat()
    assert daemon.frozen() == ""
