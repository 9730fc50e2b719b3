"""How large one attempt of a job is, where the job leaves that open within a range."""

from itertools import product
from typing import NamedTuple

from headway.model.number_range import NumberRange

_EACH_UP_TO = 8
"""Of a range of nodes with at most so many numbers each is tried."""


class Size(NamedTuple):
    """So many nodes, and GPUs on each of them."""

    nodes: int
    gpus: int

    @property
    def words(self) -> str:
        """For people."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}"
        if self.nodes == 1:
            return gpus if self.gpus else "1 node"
        return f"{self.nodes} nodes" + (f" with {gpus} each" if self.gpus else "")


def sizes_of(nodes: int | NumberRange, gpus: int | NumberRange) -> tuple[Size, ...]:
    """The sizes that are tried of what a job asks for, the smallest first.

    Of the GPUs of one node both ends of the range and the powers of two between them: programs and
    links divide evenly so. Of nodes each number, so that all that are left are used when one
    is lost; of a wide range the same as of GPUs.
    """
    every = product(_numbers(nodes, each=_EACH_UP_TO), _numbers(gpus, each=0))
    sizes = (Size(*one) for one in every)
    return tuple(sorted(sizes, key=lambda size: (size.nodes * max(size.gpus, 1), size)))


def _numbers(asked: int | NumberRange, *, each: int) -> list[int]:
    if isinstance(asked, int):
        return [asked]
    first, last = asked.first, asked.last
    if last - first < each:
        return list(range(first, last + 1))
    between = (2**power for power in range(last.bit_length()))
    return sorted({first, last, *(number for number in between if first < number < last)})
