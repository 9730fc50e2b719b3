"""The record by which a daemon of this node is found again."""

import os
import threading
from pathlib import Path

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
