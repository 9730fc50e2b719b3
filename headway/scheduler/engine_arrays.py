"""Arrays with a limit in the queue of an engine: which members may be submitted now."""

from dataclasses import dataclass

TOGETHER = 200
"""So many members of an array at most are submitted as one job array."""


@dataclass(slots=True)
class Limited:
    """An array that may run *most* members at once, and how many of it are where."""

    most: int
    submitted: int
    waits: int
    has_more: bool
    """Whether some have not become runs yet."""
    takes: bool
    """Whether its engine keeps to the limit of what is submitted together."""
    taken: int = 0

    def keeps(self) -> str:
        """Why the next one is not to be submitted; empty where it is."""
        if self.submitted == 0 and self.takes:
            if self.has_more and self.waits < TOGETHER:
                return "its array is submitted as soon as all of its members are there"
            return "" if self.taken < TOGETHER else "it comes with the next part of its array"
        if self.submitted + self.taken < self.most:
            return ""
        return f"its array runs at most {self.most} members at once"
