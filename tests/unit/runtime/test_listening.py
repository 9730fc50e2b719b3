"""Who listens at a port of this machine."""

import os
import socket
from pathlib import Path

from headway.runtime.listening import _listening, listens


def test_only_the_program_that_listens_there_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert listens([1, os.getpid()], port)
        assert not listens([os.getppid()], port)
        assert not listens([os.getpid()], port + 1)
    assert not listens([os.getpid()], port)


def test_what_listens_at_another_address_does_not_get_it() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        assert not listens([os.getpid()], other.getsockname()[1])


def test_connections_of_which_there_may_be_very_many_are_not_read(tmp_path: Path) -> None:
    head, rest = "  sl  local_address rem_address st\n", " 00000000:0000 {} 0:0 00:0 0 0 0 {}\n"
    lines = [
        head,
        "0: 0100007F:1F90" + rest.format("0A", 7),
        "1: 0100007F:1F90" + rest.format("06", 0),
    ]
    (tmp_path / "tcp").write_text("".join([*lines, "unreadable"]))
    assert list(_listening(tmp_path / "tcp")) == [("0100007F", 8080, "7")]
