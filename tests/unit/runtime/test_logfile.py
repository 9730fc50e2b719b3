"""The capped log on a real file system, and what a program may put in its place."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.runtime import logfile
from headway.runtime.port import LogChunk

PUT: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "directory": Path.mkdir,
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
}


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("what", PUT)
def test_what_is_no_file_is_empty(tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    PUT[what](path)
    assert logfile.read_chunk(path, 0, 100).data == b""
    assert logfile.trim(path, 1) == 0


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_it_is_replaced_when_a_log_is_opened(tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    PUT[what](path)
    os.close(logfile.open_log(path))
    assert path.is_file()
    assert not path.is_symlink()
    path.write_text("kept")
    os.close(logfile.open_log(path))
    assert path.read_text() == "kept"


def test_the_hole_gives_the_disk_back_and_offsets_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 1_000_000)
    assert logfile.trim(path, 100_000) == 897_024  # the last multiple of 4096 before 900,000
    assert path.stat().st_size == 1_000_000
    assert path.stat().st_blocks * 512 <= 100_000 + 2 * 4096
    chunk = logfile.read_chunk(path, 10, 50)
    assert chunk == LogChunk(b"a" * 50, 897_074, 897_014)
    with path.open("ab") as log:
        log.write(b"end")
    assert logfile.read_chunk(path, 1_000_000, 50) == LogChunk(b"end", 1_000_003)


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 100)
    assert logfile.trim(path, 100) == 0
    assert logfile.trim(tmp_path / "missing", 100) == 0
    assert logfile.read_chunk(tmp_path / "missing", 5, 100) == LogChunk(b"", 5)


def test_a_log_cut_by_its_program_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short")
    assert logfile.read_chunk(path, 100, 100) == LogChunk(b"", 5)
