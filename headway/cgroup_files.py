"""The files of control groups: what each version calls them and what they say."""

import errno
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_NO_LIMIT_BYTES = 2**60
"""Version 1 writes "no limit" as a number near 2⁶³; no machine has an exbibyte."""
_REMOVE_TRIES = 50
_REMOVE_PAUSE_S = 0.02


class Names(NamedTuple):
    """How one version calls its files, and the lines of its memory.stat."""

    limit: str
    swap: str
    kills: str
    used: str
    peak: str
    inactive: str
    cache: str
    shared: str
    slab: str


V1 = Names(
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.oom_control",
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "total_inactive_file",
    "total_cache",
    "total_shmem",
    "",
)
V1_CONNECTIONS = "memory.kmem.tcp.limit_in_bytes"
"""What waits in connections, which version 1 counts beside memory, and for who has this limit."""
# memory.peak came with Linux 5.19; before it only the present is known.
V2 = Names(
    "memory.max", "memory.swap.max", "memory.events", "memory.current", "memory.peak",
    "inactive_file", "file", "shmem", "slab_reclaimable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The limit of one group and what is left of it."""

    limit_bytes: int
    available_bytes: int
    """Limit minus usage, file cache that can be dropped counted as free."""


def have_passable(folder: Path, group: str) -> None:
    """Make *folder* of *group* where need be.

    The site's own processes have a umask of 077; no process of a container could pass such a
    group, and an engine that remaps users would start none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for each in (folder, *folder.parents[: len(PurePosixPath(group).parts) - 2]):
        each.chmod(0o755)


def set_frozen(folder: Path, *, freeze: bool) -> bool:
    """Stop what runs in the group of *folder*, or let it go on; whether the kernel can."""
    for file, words in (("freezer.state", ("THAWED", "FROZEN")), ("cgroup.freeze", ("0", "1"))):
        with suppress(OSError):
            if (folder / file).exists():
                (folder / file).write_text(words[freeze])
                return True
    return False


def has_frozen(folder: Path) -> bool:
    """Whether all that is in it stands still."""
    told = table(folder / "cgroup.events").get("frozen") == 1
    return told or text(folder / "freezer.state").strip() == "FROZEN"


def groups_of(proc: Path) -> dict[str, str]:
    """Path of a process's group by controller, and of version 2 by the empty name."""
    found: dict[str, str] = {}
    for line in text(proc / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        found |= dict.fromkeys(names.split(","), path)
    return found


def memory_limit(folder: Path, names: Names) -> MemoryLimit | None:
    """The limit of the group in *folder*; None where it has none."""
    limit_bytes = number(folder / names.limit)
    if limit_bytes is None or limit_bytes >= _NO_LIMIT_BYTES:
        return None
    used_bytes = number(folder / names.used) or 0
    droppable_bytes = min(used_bytes, table(folder / "memory.stat").get(names.inactive, 0))
    return MemoryLimit(limit_bytes, max(0, limit_bytes - used_bytes + droppable_bytes))


def remove_folder(folder: Path) -> None:
    """Remove a group, as soon as its last process has gone."""
    for tries_left in range(_REMOVE_TRIES, -1, -1):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or not tries_left:
                raise
            time.sleep(_REMOVE_PAUSE_S)
        else:
            return


def read_droppable(folder: Path, names: Names) -> int:
    """Page cache below *folder* that the kernel takes back when memory is short, in bytes.

    The table of a group that has just got a child can lag behind its counters
    by two seconds (seen on Linux 6.18: 40 MiB of new page cache, none of it in
    the parent's table); the child's own does not, so it is read first.
    """
    _, children, _ = next(os.walk(folder), (folder, [], []))
    tables = [table(folder / child / "memory.stat") for child in (*children, "")]
    *below, own = (
        each.get(names.cache, 0) - each.get(names.shared, 0) + each.get(names.slab, 0)
        for each in tables
    )
    return max(sum(below), own)


def text(path: Path) -> str:
    """The file's text; empty where there is none (another version, macOS, a group just gone)."""
    try:
        return path.read_text()
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """The file's number; None where there is no file, or it says that there is no limit."""
    said = text(path).strip()
    return int(said) if said.isdecimal() else None


def table(path: Path) -> dict[str, int]:
    """A file of ``name value`` lines."""
    pairs = (line.split() for line in text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
