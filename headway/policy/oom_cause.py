"""Whose doing it is that a GPU had no memory left: the run's own, or that of others there."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.units import format_size


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody else who held memory of a GPU."""

    bytes_: int
    run_id: str = ""
    """A run of this site; empty for anybody else."""
    granted_bytes: int = 0
    """What that run was granted there."""
    pid: int | None = None
    """The process; None where the driver does not name it."""

    @property
    def over_bytes(self) -> int:
        """What it held beyond its grant; a foreign process was granted nothing."""
        return self.bytes_ - self.granted_bytes

    def __str__(self) -> str:
        """It, in a message."""
        held = f"held {format_size(self.bytes_)} there"
        if self.run_id:
            return f"run {self.run_id} {held}, of {format_size(self.granted_bytes)} granted"
        who = "a process that the driver does not name" if self.pid is None else f"pid {self.pid}"
        return f"{who}, not of this site, {held}"


@dataclass(frozen=True, slots=True)
class GpuShare:
    """One GPU of an attempt that ran out of memory, as it was at its end."""

    uuid: str
    memory_bytes: int
    """Physical memory, less what the driver keeps."""
    granted_bytes: int
    held_bytes: int | None
    """Most that the attempt was seen to hold there; None when not known."""
    others: tuple[Holder, ...] = ()

    def within_grant(self, tried_bytes: int) -> bool:
        """Whether it asked for no more than it was granted, as far as is known."""
        return (self.held_bytes or 0) + tried_bytes <= self.granted_bytes

    @property
    def is_short(self) -> bool:
        """Whether others held part of what the attempt was granted."""
        held = sum(other.bytes_ for other in self.others)
        return held > 0 and self.memory_bytes - held < self.granted_bytes


@dataclass(frozen=True, slots=True)
class Shortage:
    """What ran out, and why."""

    words: str
    """For the exit's message."""
    above_bytes: int | None
    """Each GPU needs more than this; None when others held what it was granted."""


def cause_of(shares: Sequence[GpuShare], tried_bytes: int | None) -> Shortage:
    """Why an attempt ran out of GPU memory.

    A run that stayed within its grant, while others held part of that, was
    refused what it was promised: it needs another place, not more. All others
    need more than they were granted, or than they held where that was more.

    Args:
        shares: Its GPUs.
        tried_bytes: What its last allocation asked for; None where its log does not tell.
    """
    tried = tried_bytes or 0
    for share in shares:
        if share.is_short and share.within_grant(tried):
            worst = max(share.others, key=lambda other: other.over_bytes)
            granted = format_size(share.granted_bytes)
            words = f"it stayed within the {granted} that it was granted of {share.uuid}: {worst}"
            return Shortage(words, None)
    most = max(shares, key=lambda share: share.held_bytes or 0, default=None)
    if most is None:
        return Shortage("", 0)
    asked = f" and asked for {format_size(tried)} more" if tried else ""
    held = f"held {format_size(most.held_bytes)}{asked}" if most.held_bytes else asked[5:]
    granted = f"was granted {format_size(most.granted_bytes)} of {most.uuid}"
    words = f"it {held}, and {granted}" if held else f"it {granted}"
    return Shortage(words, max(most.granted_bytes, (most.held_bytes or 0) + tried))
