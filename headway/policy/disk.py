"""May a run go on with the disk that it has taken?"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.units import GIB, format_size

_RESERVE_SHARE = 20
"""One part in so many of a disk is held back by itself."""


LEAST_BYTES = 4096
"""What each file, folder or link counts, however small: their number is bounded with the bytes."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What a run has on one file system."""

    what: str
    """In words, such as ``outputs, checkpoint and log``."""
    used_bytes: int
    free_bytes: int
    """What the file system has left."""
    total_bytes: int
    used_files: int = 0
    """Files, folders and links that it has there."""
    free_files: int = 0
    """So many the file system has room for."""
    total_files: int = 0
    """The same of an empty one; 0 where their number is not limited."""


def automatic_reserve(total_bytes: int) -> int:
    """What is held back of a disk where the operator says nothing: a twentieth, 1 to 20 GiB."""
    return min(max(total_bytes // _RESERVE_SHARE, GIB), 20 * GIB)


def why_too_much(
    uses: Sequence[DiskUse], asked_bytes: int | None, reserve_bytes: int | None
) -> str:
    """Why a run may not go on, in one line; empty while it may.

    A run that has asked for disk is held to that, and to nothing else. One
    that has not may write while the node's reserve is not touched: once it
    is, the run with most ends first. The larger its part of what it and
    nobody else could use, the more of the reserve must be left.

    Args:
        uses: What it has, by file system.
        asked_bytes: What its job asks for; None where it does not say.
        reserve_bytes: What the operator holds back; None for the automatic one.
    """
    used = sum(use.used_bytes for use in uses)
    parts = [f"{format_size(use.used_bytes)} {use.what}" for use in uses if use.used_bytes]
    files = sum(use.used_files for use in uses)
    if files * LEAST_BYTES > used // 2:
        parts.append(f"{files} files and folders, each at least {format_size(LEAST_BYTES)}")
    of_what = ", ".join(parts)
    if asked_bytes is not None:
        if used <= asked_bytes:
            return ""
        return (
            f"resources.disk: used {format_size(used)} of {format_size(asked_bytes)} "
            f"({of_what}); ask for more, or write less"
        )
    for use in uses:
        reserve = reserve_bytes if reserve_bytes is not None else automatic_reserve(use.total_bytes)
        share = use.used_bytes / max(use.used_bytes + use.free_bytes, 1)
        if use.free_bytes < reserve * share:
            return (
                f"resources.disk: the node's disk has {format_size(use.free_bytes)} left, its "
                f"reserve is {format_size(reserve)}, and this run has used {format_size(used)} "
                f"without asking for any ({of_what}); say how much it needs, or write less"
            )
        reserved_files = use.total_files // _RESERVE_SHARE
        share = use.used_files / max(use.used_files + use.free_files, 1)
        if use.total_files and use.free_files < reserved_files * share:
            return (
                f"resources.disk: the node's disk has room for {use.free_files} more files, "
                f"{reserved_files} are its reserve, and this run has made {use.used_files} without "
                "asking for disk; say how much it needs, or write fewer"
            )
    return ""
