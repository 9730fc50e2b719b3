"""The record by which a daemon of this node is found again."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from headway.node.daemon import Daemon


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
