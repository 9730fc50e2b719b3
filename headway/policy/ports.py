"""Which ports of a node a lease gets: a pure function of what is taken there."""

from collections.abc import Collection, Iterable, Sequence

from headway.model.lease import ANY_PORT
from headway.model.number_range import NumberRange


def leased_ports(
    asked: Sequence[int],
    free: NumberRange,
    *,
    published: bool,
    taken: Collection[int],
    not_of: Iterable[NumberRange] = (),
) -> dict[int, int] | None:
    """The port of the node for each port that a program has; None where too few are free.

    Args:
        asked: As the program has them; one that is told to it for each `ANY_PORT`.
        free: Of the node, from which it gets those that it does not name.
        published: Whether an engine leads a port of the node to the program's; else both are one.
        taken: Of the node, by other leases and other programs.
        not_of: Of other teams, which it never gets.
    """
    closed, found = tuple(not_of), dict[int, int]()
    named = [port for port in asked if port != ANY_PORT]
    own = set(named)
    left = (
        port
        for port in range(free.first, free.last + 1)
        if port not in taken and not any(port in theirs for theirs in closed)
    )
    for port in named:
        given = next(left, None) if published else port
        if given is None:
            return None
        found[port] = given
    for _ in range(len(asked) - len(named)):
        told = next((port for port in left if port not in own), None)
        if told is None:
            return None
        found[told] = told
    return found
