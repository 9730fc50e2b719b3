"""What lies on a node, or is kept of it in the ledger, although no run needs it any more."""

from collections.abc import Iterator

from headway.model.inspection import (
    BY_FIX,
    Finding,
    Kind,
    Lying,
    Place,
    Snapshot,
    janitor_of,
    named,
)
from headway.model.run import GRANTED, ExitKind, RunState


def left_on_the_node(seen: Snapshot) -> Iterator[Finding]:
    """Copies, uses of them, control groups and folders that are left."""
    yield from _uses(seen)
    yield from _copies(seen)
    for each in seen.here.lying:
        found = _lying(seen, each)
        if found is not None:
            yield found


def _uses(seen: Snapshot) -> Iterator[Finding]:
    """Uses of staged data by runs that need them there no more."""
    for use in seen.ledger.uses:
        run = seen.ledger.runs.get(use.run_id)
        ended = run is None or run.state is RunState.ENDED
        elsewhere = run is not None and run.state in GRANTED and run.node != use.node
        if not ended and not elsewhere:
            continue
        since = run.since if run is not None else None
        what = f"{named(use.run_id, run)} {'has ended' if ended else 'is on another node'}, "
        what += f"and still holds data set {use.key[:12]} on {use.node}"
        subject, mends = f"{use.node} {use.key} {use.run_id}", janitor_of(use.node)
        grace_s = run.grace_s if run is not None else 0.0
        yield seen.finding(Kind.STAGED, subject, what, mends, since=since, grace_s=grace_s)


def _copies(seen: Snapshot) -> Iterator[Finding]:
    """Copies on this node that the ledger has and the disk has not."""
    here = seen.here
    lying = {each.name for each in here.lying if each.place is Place.DATA_SET}
    for copy in seen.ledger.copies:
        if copy.node != here.node or copy.key in lying:
            continue
        what = f"the ledger has data set {copy.key[:12]} on {copy.node}, and no copy lies there"
        mends = f"{janitor_of(copy.node)}, or the next run that needs it"
        yield seen.finding(Kind.STAGED, f"{copy.node} {copy.key}", what, mends, since=copy.used_at)


def _lying(seen: Snapshot, it: Lying) -> Finding | None:
    """What is wrong with something that lies here; None where it has its reason."""
    why, since = _why_left(seen, it), it.changed_at
    if not why:
        return None
    if it.place is Place.CHECKPOINT:
        since = seen.ledger.runs[it.name].told_at  # the folder is older than the run's end
    kind, what = _KINDS.get(it.place, Kind.FOLDER), f"{it.place} {it.name}"
    mends = _MENDS.get(it.place) or janitor_of(seen.here.node)
    return seen.finding(kind, what, f"{what}: {why}", mends, since=since)


def _why_left(seen: Snapshot, it: Lying) -> str:
    """Why nobody needs it; empty where somebody does, or nobody knows."""
    match it.place:
        case Place.SECRETS | Place.WORK | Place.CGROUP:
            return _without_container(seen, it.name)
        case Place.UNFINISHED:
            return "it was being filled or removed when its process died"
        case Place.PARTIAL:
            return "" if seen.here.flows else "no flow process is there that could fetch it"
        case Place.CHECKPOINT:
            run = seen.ledger.runs.get(it.name)
            over = run is not None and run.exit_kind is ExitKind.OK and run.told_at is not None
            return "its run has ended well" if over else ""
        case Place.RUN:
            known = it.name in seen.ledger.runs
            return "" if known else "the ledger has no such run; it may be another ledger's"
        case Place.DATA_SET:
            copies = {copy.key for copy in seen.ledger.copies if copy.node == seen.here.node}
            return "" if it.name in copies else "the ledger does not have it"


_KINDS = {Place.CGROUP: Kind.CGROUP, Place.DATA_SET: Kind.STAGED, Place.PARTIAL: Kind.STAGED}
_MENDS = {
    Place.CHECKPOINT: BY_FIX,
    Place.RUN: "you: look whether anybody needs it, and remove it",
}


def _without_container(seen: Snapshot, container: str) -> str:
    """Why what is named after *container* is left; empty where it is needed or nobody knows."""
    if seen.here.containers is None or container in {each.name for each in seen.here.containers}:
        return ""
    run_id = container.removeprefix("headway-").rpartition("-")[0]
    return "" if run_id in seen.here.flows else "its container is gone"
