"""What a program may put in its log's place stops nobody who reads, trims or opens it."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.runtime import logfile

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
