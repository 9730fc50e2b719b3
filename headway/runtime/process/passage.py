"""What a program of another user sees of the machine's files: places of its own, and its way.

Where everybody may write, as in /tmp, it has a folder of its own, which counts as its disk and
goes with it; its shared memory and its System V objects are its own as well, and bounded.

Root's Python or headway's home may lie below a directory that is root's alone,
as /root is. In a mount namespace of the program's own, such a directory is
covered by an empty one that may be passed, in which only what the program
needs is mounted again, at its own path. Nothing else below it is there, and
what is mounted keeps its permissions. So is headway's home, wherever it lies: what other runs of
the same user have there, and data that it owns, it could write.
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

from headway.trees import lets_pass

_IO_URING_SETUP, _CLONE3 = 425, 435
_NEW_USER = 0x10000000
_X32 = 0x40000000
_NUMBER, _ARCHITECTURE, _FLAGS = 0, 4, 16
"""Where the kernel puts a call's number, what it was compiled for, and its first argument."""
_LOAD, _EQUALS, _IS_AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_SET_FILTER, _NO_SLOWER = 1, 4


class _Machine(NamedTuple):
    architecture: int
    clone: int
    unshare: int
    seccomp: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 56, 272, 317),
    "aarch64": _Machine(0xC00000B7, 220, 97, 277),
}


def refuse() -> None:
    """Refuse some system calls, as container engines do, to this process and all that it starts.

    In a user namespace a program could mount what it has removed, and io_uring keeps files open in
    no list of open files: neither could be counted as its disk. It has given up new privileges
    before.

    Programs for another architecture than the machine's own are refused every call.

    Raises:
        OSError: The kernel has no such filter.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUALS, 0, 10, machine.architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_IS_AT_LEAST, 8, 0, _X32),
        (_EQUALS, 7, 0, _IO_URING_SETUP),
        (_EQUALS, 6, 0, _CLONE3),  # its flags cannot be seen; C libraries then call clone
        (_EQUALS, 1, 0, machine.clone),
        (_EQUALS, 0, 2, machine.unshare),
        (_LOAD, 0, 0, _FLAGS),
        (_HAS_BITS, 1, 0, _NEW_USER),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filter_ = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(machine.seccomp, _SET_FILTER, _NO_SLOWER, filter_):
        code = ctypes.get_errno()
        raise OSError(code, f"system calls cannot be filtered: {os.strerror(code)}")


_CLONE_NEWNS, _CLONE_NEWIPC = 0x20000, 0x8000000
_SYS_ADMIN = 1 << 21
"""The capability without which nothing can be mounted."""
_SYSCTL = Path("/proc/sys/kernel")
_PAGE_BYTES = 4096
_SHARED_FILES = 1 << 16
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18


class Passage(TypedDict):
    """What to mount. JSON, for the process that does it."""

    covers: list[str]
    """Directories that the user may not pass, or not look around in."""
    own: list[tuple[str, str]]
    """Places where everybody may write, and the program's own folder that is mounted there."""
    shm_bytes: int
    """Most that it may have in shared memory of either kind."""
    needs: list[tuple[str, bool]]
    """What is mounted again below them, and whether it may be written."""


def open_places() -> list[Path]:
    """Where everybody may write on this machine, and has files that stay."""
    places = [Path("/tmp"), *Path("/var").iterdir(), *Path("/run").iterdir()]
    return [
        place
        for place in places
        if stat.S_ISDIR(mode := place.lstat().st_mode) and mode & stat.S_IWOTH
    ]


def may_mount() -> bool:
    """Whether this process may give a program places of its own."""
    try:
        words = Path("/proc/self/status").read_text().split()
        has_right = int(words[words.index("CapEff:") + 1], 16) & _SYS_ADMIN
        return bool(has_right) and os.access(_SYSCTL / "shmall", os.W_OK)
    except (OSError, ValueError):
        return False


def plan(
    user: tuple[int, int],
    needs: Iterable[tuple[Path, bool]],
    own: Mapping[Path, Path],
    shm_bytes: int,
    home: Path,
) -> Passage | None:
    """What to mount for a program of *user*; None where nothing is.

    Args:
        user: uid and gid.
        needs: Paths, and whether the program writes there.
        own: Places where everybody may write → the program's own folder to mount there.
        shm_bytes: Most that it may have in shared memory.
        home: The site's, where other runs of its user have files: of that it has what it needs.
    """
    homes = (home, home.resolve()) if own else ()
    passage = Passage(
        covers=[],
        needs=[],
        own=[(str(place), str(folder)) for place, folder in own.items()],
        shm_bytes=max(shm_bytes, _PAGE_BYTES),
    )
    wanted = {path: False for path, _ in _both(needs)}
    wanted |= {path: True for path, writes in _both(needs) if writes}
    for path, writes in wanted.items():
        around = (each for each in homes if path.is_relative_to(each))
        cover = _closed_above(path, user) or next(around, None)
        is_hidden = any(path.is_relative_to(place) for place in own)
        if cover is not None:
            passage["covers"].append(str(cover))
        if cover is not None or is_hidden:
            passage["needs"].append((str(path), writes))
    passage["covers"] = sorted(set(passage["covers"]))
    passage["needs"].sort()
    return passage if passage["covers"] or own else None


def _both(needs: Iterable[tuple[Path, bool]]) -> list[tuple[Path, bool]]:
    """Each path as it is written and without links, if it is there."""
    there = [(path, writes) for path, writes in needs if path.exists()]
    return [(each, writes) for path, writes in there for each in (path, path.resolve())]


def _closed_above(path: Path, user: tuple[int, int]) -> Path | None:
    """The first directory on the way to *path* that *user* may not pass."""
    ways = reversed(path.parents)
    return next((folder for folder in ways if not lets_pass(folder.stat(), user)), None)


def make(passage: Passage) -> None:
    """Make the passage for this process and what it starts; while it is still root.

    Raises:
        OSError: This machine does not let headway mount; says what to do.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.unshare(_CLONE_NEWNS | (_CLONE_NEWIPC if passage["own"] else 0)))
        _mount(libc, b"none", "/", _REC | _PRIVATE)
        # Held open, since their paths are covered by then.
        steps: list[tuple[str, int, bool]] = [(cover, -1, True) for cover in passage["covers"]]
        steps += [(path, os.open(path, os.O_PATH), writes) for path, writes in passage["needs"]]
        own = [(os.open(folder, os.O_PATH), place) for place, folder in passage["own"]]
        for folder, place in own:
            _mount(libc, f"/proc/self/fd/{folder}".encode(), place, _BIND)
            _mount(libc, b"none", place, _BIND | _REMOUNT | _NOSUID | _NODEV)
            os.close(folder)
        if own:
            _have_own_shared_memory(libc, passage["shm_bytes"])
        for path, source, writes in sorted(steps):  # the outer ones first
            if source < 0:
                if Path(path).is_dir():  # else it is hidden itself
                    _mount(libc, b"tmpfs", path, _NOSUID | _NODEV, kind=b"tmpfs")
                    Path(path).chmod(0o755)
                continue
            _place(Path(path), directory=stat.S_ISDIR(os.fstat(source).st_mode))
            _mount(libc, f"/proc/self/fd/{source}".encode(), path, _BIND)
            if not writes:
                _mount(libc, b"none", path, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
            os.close(source)
    except OSError as error:
        raise OSError(
            f"its own {', '.join(place for place, _ in passage['own'])}, and a way round "
            f"{', '.join(passage['covers']) or 'nothing'}, could not be mounted ({error}); install "
            "headway and its Python where every user may pass, such as /opt/headway, and let root "
            "mount"
        ) from error


def _have_own_shared_memory(libc: ctypes.CDLL, most_bytes: int) -> None:
    """Shared memory of both kinds and message queues, which nobody else sees."""
    options = f"size={most_bytes},nr_inodes={_SHARED_FILES},mode=1777"
    _mount(libc, b"tmpfs", "/dev/shm", _NOSUID | _NODEV, kind=b"tmpfs", options=options)
    if Path("/dev/mqueue").is_dir():
        _mount(libc, b"mqueue", "/dev/mqueue", _NOSUID | _NODEV, kind=b"mqueue")
    for name, most in (("shmall", most_bytes // _PAGE_BYTES), ("msgmni", 16), ("shmmni", 256)):
        (_SYSCTL / name).write_text(str(most))


def _place(path: Path, *, directory: bool) -> None:
    """Something to mount on, which everybody may pass."""
    for folder in reversed(path.parents):
        if not folder.exists():
            _make_folder(folder)
    if path.exists():
        return
    if directory:
        _make_folder(path)
    else:
        path.touch(mode=0o600)


def _make_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)  # whatever the umask is: Python lists the folders that it imports from


def _mount(
    libc: ctypes.CDLL,
    source: bytes,
    target: str,
    flags: int,
    *,
    kind: bytes = b"none",
    options: str = "",
) -> None:
    flags_, data = ctypes.c_ulong(flags), options.encode() or None
    _checked(libc.mount(source, os.fsencode(target), kind, flags_, data))


def _checked(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
