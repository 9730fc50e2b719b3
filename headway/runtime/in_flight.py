"""Files that one process has sent to another over a socket, and that nobody has received yet.

No process holds them open, so no list of open files has them. They are looked at through a
copy of the socket, without being taken out of it.
"""

import array
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from ctypes import CDLL, get_errno
from errno import ESRCH
from pathlib import Path
from stat import S_ISSOCK

_PIDFD_GETFD = 438
_SO_PEEK_OFF = 42
_MOST_AT_ONCE = 253  # the kernel's SCM_MAX_FD
_MOST_MESSAGES = 1 << 16
_PENDING = re.compile(r"^(?:scm_fds|UserFiles):\s*(\d+)", re.MULTILINE)


def pending(pid: int, fd: int) -> int:
    """How many files *fd* of process *pid* holds: a socket, in which they wait, or an io_uring.

    0 where the kernel does not tell.
    """
    found = None
    with suppress(OSError):
        found = _PENDING.search(Path(f"/proc/{pid}/fdinfo/{fd}").read_text())
    return int(found[1]) if found else 0


def files_in(pid: int, fd: int) -> Iterator[os.stat_result | None]:
    """What ``fstat`` says of each file that waits in socket *fd* of process *pid*.

    None stands for those in connections that nobody has accepted: they cannot be looked at.

    Raises:
        OSError: The process is gone, or this one may not look into it.
    """
    libc = CDLL(None, use_errno=True)
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        if error.errno == ESRCH:
            raise
        # No process, but a thread that has files of its own.
        try:
            process = os.pidfd_open(pid, os.O_EXCL)
        except OSError:  # the kernel does not know of such
            yield None
            return
    try:
        copy = libc.syscall(_PIDFD_GETFD, process, fd, 0)
    finally:
        os.close(process)
    if copy < 0:
        raise OSError(get_errno(), os.strerror(get_errno()))
    with socket.socket(fileno=copy) as opened:
        yield from _files(opened, set())


def _files(opened: socket.socket, known: set[int]) -> Iterator[os.stat_result | None]:
    """Each file that waits in *opened*, and in sockets that do; those *known* are passed by."""
    inode = os.fstat(opened.fileno()).st_ino
    if inode in known:
        return  # two sockets may wait in each other
    known.add(inode)
    if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        yield None
        return
    before = opened.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF)
    opened.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, 0)
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    space = socket.CMSG_SPACE(_MOST_AT_ONCE * array.array("i").itemsize)
    left = pending(os.getpid(), opened.fileno())
    try:
        for _ in range(_MOST_MESSAGES):
            if left <= 0:
                return
            _, parts, _, _ = opened.recvmsg(1 << 18, space, flags)
            received = list(_received(parts))
            left -= len(received)
            try:
                for fd in received:
                    stat = os.fstat(fd)
                    yield stat
                    if S_ISSOCK(stat.st_mode) and pending(os.getpid(), fd):
                        with socket.socket(fileno=os.dup(fd)) as inner:
                            yield from _files(inner, known)
            finally:
                for fd in received:
                    os.close(fd)
    except BlockingIOError:
        return  # its program has taken them meanwhile
    finally:
        opened.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, before)


def _received(parts: list[tuple[int, int, bytes]]) -> Iterator[int]:
    for level, kind, data in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            yield from array.array("i", data[: len(data) // 4 * 4])
