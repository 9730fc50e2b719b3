"""What daemons print without end takes a bounded part of the disk."""

import os
import sys
from pathlib import Path

import pytest

from headway.node.daemon import Daemon, bound_logs


def test_a_log_is_emptied_under_the_daemon_that_writes_it(tmp_path: Path) -> None:
    daemon = Daemon("database", tmp_path)
    says = [sys.executable, "-c", "print('x' * 2000, flush=True); input(); print('after')"]
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    shell = ["/bin/sh", "-c", '"$@" < gate', "sh", *says]
    process = daemon.start(shell, os.environ, cwd=tmp_path)
    with gate.open("w") as opened:
        while daemon.log.stat().st_size < 2001:
            assert process.is_running()
        assert bound_logs(tmp_path, limit_bytes=2001) == []
        assert bound_logs(tmp_path, limit_bytes=2000) == [daemon.log]
        assert daemon.log.stat().st_size == 0
        opened.write("\n")
    process.wait(60)
    assert daemon.log.read_text() == "after\n"
    before = tmp_path / "database.log.1"
    assert before.read_text() == "x" * 2000 + "\n"
    assert before.stat().st_mode == daemon.log.stat().st_mode


def test_a_log_that_cannot_be_copied_keeps_no_other_from_being_emptied(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.log").write_text("x" * 100)
    (tmp_path / "b.log.1").mkdir()
    (tmp_path / "b.log.1" / "b.log").mkdir()
    with pytest.raises(IsADirectoryError):
        bound_logs(tmp_path, limit_bytes=10)
    assert [(tmp_path / f"{name}.log").stat().st_size for name in ("a", "b", "c")] == [0, 100, 0]
