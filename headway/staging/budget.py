"""Which sets give way to a new one: a pure decision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.model.staged import StagedSet


@dataclass(frozen=True, slots=True)
class CacheSpace:
    """What the cache may take, and what it has taken, without the set in question."""

    budget_bytes: int
    used_bytes: int
    """Sizes of the sets that lie there."""
    reserved_bytes: int
    """Promised to fetches under way."""
    disk_free_bytes: int
    """Free on the file system, less what fetches under way will still write."""


def beyond_share(held: Mapping[str, int], key: str, size_bytes: int, share_bytes: int) -> bool:
    """Whether one owner's runs would hold more than its share with set *key* of *size_bytes*.

    Args:
        held: Sizes of the sets that they use or fetch, by key.
        key: What one of them wants; it may be among those.
        size_bytes: Its size.
        share_bytes: Of the cache.
    """
    return sum({**held, key: size_bytes}.values()) > share_bytes


def victims(
    room: CacheSpace, evictable: Sequence[StagedSet], needed_bytes: int, to_write_bytes: int
) -> list[StagedSet] | int:
    """Sets to evict, least recently used first, so that *needed_bytes* fit.

    Args:
        room: What there is.
        evictable: Sets no run uses, least recently used first.
        needed_bytes: Size of the new set, counted against the budget.
        to_write_bytes: The part of it that is not on the disk yet.

    Returns:
        As few as that order allows, possibly none; or, when even all of them
        are not enough, the bytes that could be had. Then none is evicted in vain.
    """
    free = room.budget_bytes - room.used_bytes - room.reserved_bytes
    short = max(needed_bytes - free, to_write_bytes - room.disk_free_bytes)
    chosen: list[StagedSet] = []
    for each in evictable:
        if short <= 0:
            break
        chosen.append(each)
        short -= each.size_bytes
    return chosen if short <= 0 else max(0, needed_bytes - short)
