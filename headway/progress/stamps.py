"""When a line was written, for a log that is read after the fact."""

import math
import re
from datetime import datetime

_HEAD = 80
"""A time stands at the beginning of a line; later on it is something else."""
_ISO = re.compile(r"\b([0-9]{4}[-/][01][0-9][-/][0-3][0-9])[ T]([0-9:]{8}(?:[.,][0-9]{1,6})?)")
# "I0714 10:00:01.250000", as glog and absl write; without a year.
_GLOG = re.compile(r"\b[IWEF]([01][0-9])([0-3][0-9]) ([0-9:]{8}(?:\.[0-9]{1,6})?)")


class LineClock:
    """Seconds since the first line that says when it was written."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def seconds(self, line: str) -> float:
        """Seconds from the first time in the log to the one in *line*; NaN when it has none."""
        at_s = _at(line[:_HEAD])
        if at_s is None:
            return math.nan
        self._first_s = at_s if self._first_s is None else self._first_s
        # Back in time: a line of another machine, or New Year without a year.
        return max(at_s - self._first_s, 0.0)


def _at(head: str) -> float | None:
    """The time in *head*, in seconds since some fixed moment."""
    if match := _ISO.search(head):
        day, time = match[1].replace("/", "-"), match[2]
    elif match := _GLOG.search(head):
        day, time = f"2000-{match[1]}-{match[2]}", match[3]  # a leap year
    else:
        return None
    try:
        return datetime.fromisoformat(f"{day} {time}+00:00").timestamp()
    except ValueError:  # such as 30 February
        return None
