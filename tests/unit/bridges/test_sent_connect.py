"""A forwarded connection as the container's side carries it: each side ends for itself."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headway.bridges.sent import headway_ssh
from headway.bridges.ssh_server import Unframed

Ends = tuple[socket.socket, "subprocess.Popen[bytes]"]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """What serves a port, and the process that is connected to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = [sys.executable, "-I", str(headway_ssh.__file__), "connect", "127.0.0.1"]
        port = str(listening.getsockname()[1])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([*words, port], **pipes) as process, listening.accept()[0] as there:
            yield there, process
            process.kill()


class Writer:
    """Notes what it is told; None is the end."""

    def __init__(self) -> None:
        self.told: list[bytes | None] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def write_eof(self) -> None:
        self.told.append(None)


def _unframed(pieces: list[bytes]) -> list[bytes | None]:
    writer: Any = Writer()
    unframed = Unframed(writer)
    for piece in pieces:
        unframed.write(piece)
    told: list[bytes | None] = writer.told
    return told


def test_what_comes_from_there_may_end_first(ends: Ends) -> None:
    there, process = ends
    assert process.stdin is not None
    assert process.stdout is not None
    there.sendall(b"all")
    there.shutdown(socket.SHUT_WR)
    frames = process.stdout.read(7)
    assert _unframed([frames]) == [b"all", None]
    process.stdin.write(b"more")
    process.stdin.close()
    assert b"".join(iter(lambda: there.recv(99), b"")) == b"more"
    assert process.wait(60) == 0


def test_what_is_given_may_end_first(ends: Ends) -> None:
    there, process = ends
    assert process.stdin is not None
    process.stdin.close()
    assert there.recv(9) == b""
    there.sendall(b"x" * 70_000)
    there.close()
    assert process.stdout is not None
    told = _unframed([process.stdout.read()])
    assert told[-1] is None
    assert b"".join(each for each in told if each) == b"x" * 70_000
    assert process.wait(60) == 0


def test_frames_may_come_in_any_pieces() -> None:
    frames = b"\x00\x02ab\x00\x01c\x00\x00"
    for size in range(1, len(frames)):
        pieces = [frames[at : at + size] for at in range(0, len(frames), size)]
        assert _unframed(pieces) == [b"ab", b"c", None]
