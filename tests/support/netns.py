"""Network namespaces: a machine of its own for a test, and the world outside of it."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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


def cable(near: str, near_address: str, far: str, far_address: str) -> None:
    """Join two namespaces by a link, ``eth0`` at both ends; addresses with their prefix."""
    ip("link", "add", "eth0", "netns", near, "type", "veth", "peer", "name", "eth0", "netns", far)
    for name, address in ((near, near_address), (far, far_address)):
        ip("-n", name, "addr", "add", address, "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")


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
