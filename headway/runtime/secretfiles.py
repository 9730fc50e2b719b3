"""The secrets of an attempt as files: what its program reads them from, and nobody else.

One folder a container, ``secrets/NAME`` below headway's home, each value a file of mode 0400
that belongs to the program's user. It is mounted read-only, and removed with the container.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from headway.durable import UNFINISHED

TARGET = "/run/secrets"
"""Where a container finds them."""


def write(folder: Path, values: Mapping[str, str], owner: tuple[int, int] | None) -> None:
    """Make *folder* with a file for each of *values*, all of it or nothing.

    Args:
        folder: New; one that a killed process left there is replaced.
        values: By name of the file.
        owner: uid and gid of the program; None for this process's own.
    """
    # Others may pass, to what is theirs, but not look around.
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.parent.chmod(0o711)
    part = folder.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    part.mkdir(mode=0o700)
    try:
        for name, value in values.items():
            fd = os.open(part / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
            with os.fdopen(fd, "wb") as file:
                file.write(value.encode(errors="surrogateescape"))
                if owner is not None:
                    os.fchown(fd, *owner)
        if owner is not None:
            os.chown(part, *owner)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def read(folder: Path) -> tuple[bytes, ...]:
    """The values in *folder*; none where there is no such folder, or it is not ours to read."""
    try:
        return tuple(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ()


def remove(folder: Path) -> None:
    """Remove *folder* with what is in it. Idempotent."""
    shutil.rmtree(folder, ignore_errors=True)
