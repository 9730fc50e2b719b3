"""What lies on a node, or is kept of it in the ledger, although no run needs it any more."""

from collections.abc import Iterator

from headway.model.run import GRANTED, ExitKind, RunState
from headway.policy.audit import Finding, Kind, Lying, Place, Snapshot, janitor_of, named


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
        yield Finding(
            Kind.STAGED,
            f"{use.node} {use.key} {use.run_id}",
            f"{named(use.run_id, run)} {'has ended' if ended else 'is on another node'}, and still "
            f"holds data set {use.key[:12]} on {use.node}",
            since,
            janitor_of(use.node),
            seen.young(since, run.grace_s if run is not None else 0.0),
        )


def _copies(seen: Snapshot) -> Iterator[Finding]:
    """Copies on this node that the ledger has and the disk has not."""
    here = seen.here
    lying = {each.name for each in here.lying if each.place is Place.DATA_SET}
    for copy in seen.ledger.copies:
        if copy.node != here.node or copy.key in lying:
            continue
        yield Finding(
            Kind.STAGED,
            f"{copy.node} {copy.key}",
            f"the ledger has data set {copy.key[:12]} on {copy.node}, and no copy of it lies there",
            copy.used_at,
            f"{janitor_of(copy.node)}, or the next run that needs it",
            seen.young(copy.used_at),
        )


def _lying(seen: Snapshot, it: Lying) -> Finding | None:
    """What is wrong with something that lies here; None where it has its reason."""
    why, kind, mends = "", Kind.FOLDER, janitor_of(seen.here.node)
    since = it.changed_at
    match it.place:
        case Place.SECRETS | Place.CGROUP:
            why = _without_container(seen, it.name)
            kind = Kind.CGROUP if it.place is Place.CGROUP else Kind.FOLDER
        case Place.UNFINISHED:
            why = "it was being filled or removed when its process died"
        case Place.CHECKPOINT:
            run = seen.ledger.runs.get(it.name)
            if run is not None and run.exit_kind is ExitKind.OK and run.told_at is not None:
                why, since = "its run has ended well", run.told_at
                mends = "`headway doctor --invariants --fix`"
        case Place.RUN:
            if it.name not in seen.ledger.runs:
                why = "the ledger has no such run; it may be another ledger's"
                mends = "you: look whether anybody needs it, and remove it"
        case Place.DATA_SET:
            known = {copy.key for copy in seen.ledger.copies if copy.node == seen.here.node}
            if it.name not in known:
                why, kind = "the ledger does not have it", Kind.STAGED
    if not why:
        return None
    young = seen.young(since)
    return Finding(
        kind, f"{it.place} {it.name}", f"{it.place} {it.name}: {why}", since, mends, young
    )


def _without_container(seen: Snapshot, container: str) -> str:
    """Why what is named after *container* is left; empty where it is needed or nobody knows."""
    if seen.here.containers is None or container in {each.name for each in seen.here.containers}:
        return ""
    run_id = container.removeprefix("headway-").rpartition("-")[0]
    return "" if run_id in seen.here.flows else "its container is gone"
