"""How much memory a container really needed, from what its control group shows now and then.

The kernel's own peak counts page cache, which is whatever was free: a first
start that reads its libraries from disk peaks at twice the second one. A
container is killed only for what cannot be dropped: anonymous memory, files in
shared memory, and the kernel's own.
"""

from dataclasses import dataclass

from headway.cgroups import GroupReading
from headway.runtime.port import Usage


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """What a container held at most, as far as its readings tell."""

    highest_bytes: int = 0
    """Most at once that could not be dropped."""
    cache_bytes: int = 0
    """Most at once that could."""
    kernel_peak_bytes: int = 0
    """The kernel's peak at the newest reading."""
    newest: GroupReading | None = None

    def after(self, reading: GroupReading) -> "MemoryPeak":
        """What is known with one more *reading*.

        Where the kernel's peak has risen since the reading before, it was
        reached in between: nearly all that can be dropped now was there
        then, so what exceeds it was needed, however short the moment. Cache
        that went meanwhile makes this too much, never too little.
        """
        peak, used = reading.peak_bytes or 0, reading.used_bytes or 0
        newest_bytes = peak if peak > self.kernel_peak_bytes else used
        return MemoryPeak(
            highest_bytes=max(self.highest_bytes, newest_bytes - reading.droppable_bytes),
            cache_bytes=max(self.cache_bytes, reading.droppable_bytes),
            kernel_peak_bytes=max(self.kernel_peak_bytes, peak),
            newest=reading,
        )

    def usage(self) -> Usage:
        """The same as a runtime reports it."""
        if self.newest is None:
            return Usage()
        peak, used = self.newest.peak_bytes, self.newest.used_bytes
        known = peak is not None or used is not None
        return Usage(
            host_peak_bytes=self.highest_bytes if known else None,
            host_cache_bytes=self.cache_bytes if known else None,
            host_used_bytes=None if used is None else max(used - self.newest.droppable_bytes, 0),
            cpu_s=self.newest.cpu_s,
        )
