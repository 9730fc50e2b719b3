"""A gang that runs: what becomes of all its ranks when something happens to one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.model.run import Exit, ExitKind

TAKE_WITHIN_S = 120.0
"""A rank whose node has not begun it for so long never will: its worker is away."""
SILENT_S = 30.0
"""A rank without a sign of life for so long is taken for lost."""
START_TOGETHER_S = 3600.0
"""So long the ranks that are ready wait for the data and the image of the others."""
END_TOGETHER_S = 60.0
"""Ranks that still run so long after rank 0 ended well are stopped."""
BLAME_WITHIN_S = 30.0
"""So long is looked for the rank that made rank 0 fail."""

_CAUSES = frozenset({ExitKind.OUT_OF_MEMORY, ExitKind.GPU_OUT_OF_MEMORY, ExitKind.INFRASTRUCTURE})
"""What ends one rank by itself, and the others with an error of their own."""
_OWN = frozenset({ExitKind.CANCELLED, ExitKind.PREEMPTED, ExitKind.TIMED_OUT})
"""Ends of rank 0 that headway brought about: no other rank explains them."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A part of a gang on another node, as the ledger has it."""

    number: int
    node: str
    begun: bool
    """It has taken its lease and is a run; before that the gang's lease is held for it."""
    ready: bool
    """Data and image are on its node."""
    exit: Exit | None
    """None until it has ended."""
    silent_s: float
    """Since its node was heard of, or its lease expired, the less of both: a worker may be away."""
    quiet_s: float = 0.0
    """Since its node was heard of, or its lease renewed, the less of both."""

    @property
    def who(self) -> str:
        """It, in a message."""
        return f"rank {self.number} on {self.node}"


def why_stop(ranks: Sequence[Rank], waited_s: float) -> Exit | None:
    """The end of the whole gang that another rank's fate calls for while rank 0 runs.

    Args:
        ranks: The others.
        waited_s: Since rank 0 began.

    Returns:
        The exit; None while all is well.
    """
    # Those that lose a peer fail, too: what ended one by itself is named before that.
    for rank in sorted(ranks, key=lambda each: each.exit is None or each.exit.kind not in _CAUSES):
        if rank.exit is not None and rank.exit.kind is not ExitKind.OK:
            return _because_of(rank, rank.exit)
        if rank.exit is None and rank.silent_s > SILENT_S:
            return _lost(rank)
        if not rank.begun and waited_s > TAKE_WITHIN_S:
            return _infrastructure(
                f"{rank.who} has not begun for {waited_s:.0f} s: is its worker up?"
            )
    return None


def why_not_start(ranks: Sequence[Rank], waited_s: float) -> Exit | None:
    """The end of a gang that waits to start together; None while the others may yet be ready.

    Args:
        ranks: Those beside rank 0, which is ready.
        waited_s: Since it was.
    """
    stopped = why_stop(ranks, waited_s)
    late = [rank.who for rank in ranks if not rank.ready]
    if stopped is not None or not late or waited_s <= START_TOGETHER_S:
        return stopped
    return _infrastructure(
        f"{' and '.join(late)} had not brought data and image for {waited_s:.0f} s when all others "
        "waited to start"
    )


def verdict(own: Exit, ranks: Sequence[Rank], waited_s: float) -> Exit | None:
    """How a gang ended whose rank 0 ended as *own*; None to ask again in a moment.

    Ranks that lose a peer fail with an error of their own, so the first to end
    is not the one to blame: a rank that ran out of memory or was lost is. That of a
    node which is gone fails its peers long before its lease expires: it has given no sign
    of life since.

    Args:
        own: The end of rank 0, or of the rank for which it was stopped.
        ranks: The others.
        waited_s: Since that end.
    """
    if own.kind in _OWN:
        return own
    for rank in ranks:
        if rank.exit is not None and rank.exit.kind in _CAUSES:
            return _because_of(rank, rank.exit)
        if rank.exit is None and rank.silent_s > SILENT_S:
            return _lost(rank)
    if own.kind is ExitKind.OK:
        bad = [rank for rank in ranks if rank.exit and rank.exit.kind is not ExitKind.OK]
        if bad and bad[0].exit is not None:
            return _because_of(bad[0], bad[0].exit)
    open_ranks = [rank for rank in ranks if rank.begun and rank.exit is None]
    limit_s = END_TOGETHER_S if own.kind is ExitKind.OK else BLAME_WITHIN_S
    if open_ranks and waited_s < limit_s:
        return None
    gone = [rank for rank in open_ranks if rank.quiet_s >= waited_s]
    return _lost(gone[0]) if gone and own.kind is not ExitKind.OK else own


def _because_of(rank: Rank, found: Exit) -> Exit:
    # A rank ends as cancelled only by its own owner's word, which means the run.
    return replace(found, message=f"{rank.who}: {found.message}")


def _lost(rank: Rank) -> Exit:
    heard_s = max(rank.silent_s, rank.quiet_s)
    return _infrastructure(f"{rank.who} is lost: not heard of for {heard_s:.0f} s")


def _infrastructure(message: str) -> Exit:
    return Exit(ExitKind.INFRASTRUCTURE, None, f"{message}; all ranks start anew together")
