"""How much memory a container really needed, from what its control group shows now and then.

The kernel's own peak counts page cache, which is whatever was free: a first
start that reads its libraries from disk peaks at twice the second one. A
container is killed only for what cannot be dropped: anonymous memory, files in
shared memory, and the kernel's own.
"""

from dataclasses import dataclass

from headway.runtime.port import Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """A control group at one moment. None: this kernel does not tell."""

    peak_bytes: int | None
    """The kernel's peak until now, page cache included."""
    used_bytes: int | None
    """In use now, page cache included."""
    droppable_bytes: int
    """Of what is in use now, what the kernel takes back when memory is short."""
    cpu_s: float | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a container held at most, as far as it was looked at."""

    highest_bytes: int = 0
    """Most at once that could not be dropped."""
    cache_bytes: int = 0
    """Most at once that could."""
    peak_bytes: int = 0
    """The kernel's peak at the newest look."""
    known: bool = False
    """Whether any look saw how much was in use."""

    def after(self, reading: Reading) -> "Held":
        """What is known with one more *reading*.

        Where the kernel's peak has risen since the look before, it was
        reached in between: nearly all that can be dropped now was there
        then, so what exceeds it was needed, however short the moment. Cache
        that went meanwhile makes this too much, never too little.
        """
        peak, used = reading.peak_bytes or 0, reading.used_bytes or 0
        newest = peak if peak > self.peak_bytes else used
        return Held(
            highest_bytes=max(self.highest_bytes, newest - reading.droppable_bytes),
            cache_bytes=max(self.cache_bytes, reading.droppable_bytes),
            peak_bytes=max(self.peak_bytes, peak),
            known=self.known or reading.peak_bytes is not None or reading.used_bytes is not None,
        )

    def usage(self, reading: Reading | None) -> Usage:
        """The same as a runtime reports it, with the newest *reading* where there still is one."""
        used = reading.used_bytes if reading else None
        return Usage(
            host_peak_bytes=self.highest_bytes if self.known else None,
            host_cache_bytes=self.cache_bytes if self.known else None,
            host_used_bytes=None
            if used is None or reading is None
            else max(used - reading.droppable_bytes, 0),
            cpu_s=reading.cpu_s if reading else None,
        )
