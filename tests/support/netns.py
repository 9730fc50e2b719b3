"""Network namespaces: a machine of its own for a test, and the world outside of it."""

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*arguments: str) -> None:
    """`ip ARGUMENTS`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace with its loopback up."""
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


def cable(near: str, near_address: str, far: str, far_address: str, device: str = "eth0") -> None:
    """Join two namespaces by a link; addresses with their prefix.

    It is *device* at the near end and ``eth0`` at the far one.
    """
    ip("link", "add", device, "netns", near, "type", "veth", "peer", "name", "eth0", "netns", far)
    for name, address, end in ((near, near_address, device), (far, far_address, "eth0")):
        ip("-n", name, "addr", "add", address, "dev", end)
        ip("-n", name, "link", "set", end, "up")


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Be in that namespace with this thread, and with whatever it starts."""
    back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(Path("/run/netns") / name, os.O_RDONLY)
    try:
        _enter(there)
        try:
            yield
        finally:
            _enter(back)
    finally:
        os.close(there)
        os.close(back)


def _enter(fd: int) -> None:
    if _LIBC.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class greeting:  # noqa: N801 - used as a context
    """A service of a namespace, on each of its addresses, that says hello."""

    def __init__(self, name: str, port: int) -> None:
        with inside(name):
            self.server = socket.create_server(("", port))
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                with connection, suppress(OSError):
                    connection.sendall(b"hello\n")

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
