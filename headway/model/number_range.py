"""A range of whole numbers, such as the uids of a team or the ports that it may use."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

_WRITTEN = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


@dataclass(frozen=True, slots=True, order=True)
class NumberRange:
    """From *first* to *last*, both within."""

    first: int
    last: int

    @classmethod
    def read(cls, text: str) -> Self:
        """From ``200000-200999``, or ``200000`` for one alone. Raises `ValueError`."""
        found = _WRITTEN.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no range; give one such as 200000-200999")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{text!r} ends before it begins; give one such as 200000-200999")
        return cls(first, last)

    def __str__(self) -> str:
        """As `read` takes it."""
        return f"{self.first}-{self.last}"

    def __contains__(self, number: int) -> bool:
        """Is *number* in it?"""
        return self.first <= number <= self.last

    def holds(self, other: "NumberRange") -> bool:
        """Is all of *other* in it?"""
        return self.first <= other.first and other.last <= self.last

    def meets(self, other: "NumberRange") -> bool:
        """Have the two a number in common?"""
        return self.first <= other.last and other.first <= self.last


def _read(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return NumberRange.read(str(value))
    return NumberRange.read(value) if isinstance(value, str) else value


WrittenRange = Annotated[NumberRange, BeforeValidator(_read), PlainSerializer(str)]
"""A range in a document that an operator writes."""


def _no_systems(ports: NumberRange) -> NumberRange:
    if not NumberRange(1024, 65_535).holds(ports):
        raise ValueError(f"give ports of 1024 to 65535, not {ports}")
    return ports


PortRange = Annotated[WrittenRange, AfterValidator(_no_systems)]
"""Such a range of ports that are not the system's."""
