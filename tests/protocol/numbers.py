"""What the tables of the model are made of."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Table:
    """Rows of numbers, of one width; an array once they are `shown`."""

    def __init__(self, width: int) -> None:
        self._kept, self._width = array("q"), width
        self.rows: Numbers = np.empty((0, width), dtype=np.int64)

    def add(self, numbers: Sequence[int]) -> None:
        self._kept.extend(numbers)

    def show(self) -> None:
        self.rows = np.array(self._kept, dtype=np.int64).reshape(-1, self._width)

    def __len__(self) -> int:
        return len(self._kept) // self._width


def bits(flags: Iterable[bool]) -> int:
    """The flags as one number, the first one its lowest bit."""
    return sum(flag << number for number, flag in enumerate(flags))
