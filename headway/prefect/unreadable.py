"""Runs that Prefect's server stores but cannot send.

Half of a surrogate pair, or a whole number beyond 64 bits, in the parameters of one run is
stored, and so is a list in their place; from then on every page of `/flow_runs/filter` with this
run on it is answered with HTTP 500. `HISTORY` lists the same runs without their parameters, so
their ids are known, and the page is asked for again in parts.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

HISTORY = "/ui/flow_runs/history"
"""Takes the filters of `/flow_runs/filter`; answers ids and types of states."""
REASON = (
    "Prefect's server stores the parameters of this run but cannot send them: they are no mapping, "
    "or there is half of a surrogate pair in a text, or a whole number beyond 64 bits"
)
REFUSED = (
    f"{REASON}. No worker could start it, so it was refused and its parameters were removed from "
    "Prefect; correct that value in the job and submit it again"
)

Row = TypeVar("Row")
Apart = tuple[list[Row], list[str]]
"""The runs that can be read, and the ids of the others."""


def apart(run_ids: Sequence[str]) -> Generator[Sequence[str], Sequence[Row] | None, Apart[Row]]:
    """Tell runs that the server can send from those it cannot, by halving.

    Whoever drives this asks for the runs whose ids it yields, and sends what came, or None
    where the server failed: so it serves blocking and asynchronous clients alike.

    Args:
        run_ids: Runs of a page that the server could not send.
    """
    readable: list[Row] = []
    unreadable: list[str] = []
    parts = [run_ids] if run_ids else []
    while parts:
        part = parts.pop()
        answer = yield part
        if answer is not None:
            readable += answer
        elif len(part) == 1:
            unreadable += part
        else:
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
    return readable, unreadable


def read_apart(
    run_ids: Sequence[str], read: Callable[[Sequence[str]], Sequence[Row] | None]
) -> Apart[Row]:
    """`apart` for a blocking client: *read* gives runs by their ids, or None where that fails."""
    search: Generator[Sequence[str], Sequence[Row] | None, Apart[Row]] = apart(run_ids)
    try:
        part = next(search)
        while True:
            part = search.send(read(part))
    except StopIteration as found:
        result: Apart[Row] = found.value
        return result
