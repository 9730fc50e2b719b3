"""How many runs a node claims ahead of the flow processes that take them up."""

CLAIM_LIMIT_S = 30.0
"""Within so long a node has to begin what it was granted; then that is given back."""
START_LIMIT_S = 180.0
"""Within so long a flow process that a node has begun has to take its lease up.

Of twenty short jobs at once on two cores with a load of thirteen the slowest took 20 s.
"""
_CLAIMS_A_CPU = 2.0


def claim_room(cpus: float, untaken: int, slots: int | None = None) -> int:
    """How many runs more may be claimed now on a node.

    A claim holds its place while its flow process starts. A node with many starting at
    once starts each of them late, and the places are empty meanwhile.

    Args:
        cpus: Of the node.
        untaken: Claims there that no flow process has taken up yet.
        slots: How many its worker may submit now; None where it has no limit.
    """
    room = max(round(_CLAIMS_A_CPU * cpus), 1) - untaken
    return max(room if slots is None else min(room, slots), 0)
