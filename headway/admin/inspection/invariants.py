"""Whether leases, runs, containers and states agree: what breaks the site's promises.

One pure function of what was read, `look`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from headway.model.inspection import (
    Finding,
    Kind,
    SeenRun,
    SeenState,
    Snapshot,
    janitor_of,
    named,
)
from headway.model.lease import Lease, Sharing
from headway.model.node import Node
from headway.model.prefect_view import PrefectView
from headway.model.run import GRANTED, RunState
from headway.policy.agree import end_seen
from headway.units import format_size

_ROUNDING = 1e-6
_BY_REMOVAL = "`headway node remove`, given again for this node"


def look(seen: Snapshot) -> list[Finding]:
    """Everything in *seen* that is not as it should be."""
    checks = (
        _leases,
        _granted,
        _promised,
        _containers,
        _flows,
        prefect_disagrees,
        _unreadable,
    )
    return [finding for check in checks for finding in check(seen)]


def confirmed(before: Iterable[Finding], now: Iterable[Finding]) -> list[Finding]:
    """Those of *now* that were there *before*, or are too young to be called broken.

    Ledger, node and Prefect are not read at one moment: what stands between two
    readings may look broken in either of them, but hardly in both.
    """
    known = {(each.kind, each.subject) for each in before}
    return [each for each in now if each.under_way or (each.kind, each.subject) in known]


def _leases(seen: Snapshot) -> Iterator[Finding]:
    """Live leases against runs, nodes and their deadlines."""
    nodes = {node.name for node in seen.ledger.nodes}
    for lease in seen.ledger.leases:
        run = seen.ledger.runs.get(lease.run_id)
        why = _why_wrong(lease, run, nodes)
        if why:
            since = run.since if run is not None and run.state not in GRANTED else None
            grace_s = run.grace_s if run is not None else 0.0
            what = f"lease {lease.lease_id} on {lease.node} of {named(lease.run_id, run)}, "
            what += f"attempt {lease.attempt}: {why}"
            mends = janitor_of(lease.node) if lease.node in nodes else _BY_REMOVAL
            yield seen.finding(
                Kind.LEASE, str(lease.lease_id), what, mends, since=since, grace_s=grace_s
            )
        elif lease.start_by is not None and lease.start_by < seen.ledger.now:
            what = f"no flow process has taken up the claim of {named(lease.run_id, run)} "
            what += f"on {lease.node} by its deadline"
            mends = janitor_of(lease.node)
            yield seen.finding(Kind.CLAIM, str(lease.lease_id), what, mends, since=lease.start_by)


def _why_wrong(lease: Lease, run: SeenRun | None, nodes: set[str]) -> str:
    """Why *lease* stands for nothing at work; empty where it does."""
    if run is None:
        return "the ledger has no such run"
    elsewhere = lease.gang_rank == 0 and run.node != lease.node
    reasons = (
        (lease.node not in nodes, "this node is none of the site any more"),
        (run.state is RunState.ENDED, "the run has ended"),
        (lease.attempt != run.attempt, f"the run is at attempt {run.attempt}"),
        (run.state is RunState.WAITING, "the run waits"),
        (elsewhere, f"the run is on {run.node}"),
    )
    return next((why for holds, why in reasons if holds), "")


def _granted(seen: Snapshot) -> Iterator[Finding]:
    """Granted runs have a lease; running ones something that runs."""
    own = {(each.run_id, each.attempt) for each in seen.ledger.leases if each.gang_rank == 0}
    here, nodes = seen.here, {node.name for node in seen.ledger.nodes}
    containers = None if here.containers is None else {each.run_id for each in here.containers}
    for run in seen.ledger.runs.values():
        if run.state not in GRANTED or run.on_engine:
            continue
        if (run.run_id, run.attempt) not in own:
            what = f"{named(run.run_id, run)} is {run.state.value} on {run.node} without a lease"
            mends = _mends_granted(run.node, nodes)
            yield seen.finding(Kind.NO_LEASE, run.run_id, what, mends)
        begun = run.state is RunState.RUNNING and run.node == here.node
        if begun and containers is not None and run.run_id not in {*containers, *here.flows}:
            what = f"{named(run.run_id, run)} runs here with neither container nor flow process"
            young = seen.young(run.since)
            yield Finding(
                Kind.NO_PROCESS, run.run_id, what, None, janitor_of(run.node), under_way=young
            )


def _mends_granted(node: str | None, nodes: set[str]) -> str:
    if node is None:
        return "you: no node's janitor sees it; cancel it, and submit it again"
    return janitor_of(node) if node in nodes else _BY_REMOVAL


def _promised(seen: Snapshot) -> Iterator[Finding]:
    """The sum of leases is at most capacity minus reserve, for each node and GPU."""
    for node in seen.ledger.nodes:
        leases = [each for each in seen.ledger.leases if each.node == node.name]
        for what, promised, whole in _sums(node, leases):
            if promised > whole + _ROUNDING:
                size = str if what == "CPUs" else _size
                yield seen.finding(
                    Kind.OVERCOMMITTED,
                    f"{node.name} {what}",
                    f"{what} of {node.name}: {size(promised)} are promised, {size(whole)} can be",
                    "the ends of its runs: nothing is granted there until then; a reserve that "
                    "was raised under running jobs does this, anything else is a bug to report",
                )


def _sums(node: Node, leases: list[Lease]) -> Iterator[tuple[str, float, float]]:
    """What of the node is promised, how much of it, and how much of it could be."""
    capacity, reserve = node.capacity, node.reserve
    memory_bytes = sum(each.host_memory_bytes for each in leases)
    yield "host memory", memory_bytes, capacity.host_memory_bytes - reserve.host_memory_bytes
    yield "CPUs", sum(each.cpus for each in leases), capacity.cpus - reserve.cpus
    promised: Counter[str] = Counter()
    for lease in leases:
        promised.update({grant.uuid: grant.memory_bytes for grant in lease.gpus})
    for gpu in capacity.gpus:
        # A whole GPU is promised with its reserve.
        alone = _is_one_run_alone(gpu.uuid, leases)
        most = gpu.memory_bytes if alone else gpu.memory_bytes - gpu.reserve_bytes
        yield f"memory of gpu{gpu.index}", promised[gpu.uuid], most


def _is_one_run_alone(uuid: str, leases: list[Lease]) -> bool:
    grants = [grant for lease in leases for grant in lease.gpus if grant.uuid == uuid]
    return [grant.sharing for grant in grants] == [Sharing.WHOLE]


def _containers(seen: Snapshot) -> Iterator[Finding]:
    """Containers of this node against the leases on it, and one live one for each run."""
    here, runs = seen.here, seen.ledger.runs
    held = {(it.run_id, it.attempt) for it in seen.ledger.leases if it.node == here.node}
    alive: dict[str, list[str]] = defaultdict(list)
    for container in here.containers or ():
        if container.live:
            alive[container.run_id].append(container.name)
        if (container.run_id, container.attempt) not in held:
            run = runs.get(container.run_id)
            since = run.since if run is not None and run.state not in GRANTED else None
            what = f"container {container.name} belongs to no attempt with a lease on {here.node}"
            mends, grace_s = janitor_of(here.node), run.grace_s if run is not None else 0.0
            yield seen.finding(
                Kind.CONTAINER, container.name, what, mends, since=since, grace_s=grace_s
            )
    for run_id, names in alive.items():
        if len(names) > 1:
            yield seen.finding(
                Kind.TWICE,
                run_id,
                f"{named(run_id, runs.get(run_id))} is alive {len(names)} times: "
                f"{', '.join(sorted(names))}",
                f"the guard of {here.node}, which kills what belongs to no live attempt; "
                "report it, it should never be",
            )


def _flows(seen: Snapshot) -> Iterator[Finding]:
    """Live flow processes against runs; those of other flows than jobs are in no ledger."""
    for run_id in sorted(seen.here.flows):
        run = seen.ledger.runs.get(run_id)
        if run is None or (run.state in GRANTED and run.node == seen.here.node):
            continue
        since: datetime | None = None if run.state in GRANTED else run.since
        yield seen.finding(
            Kind.FLOW,
            run_id,
            f"{named(run_id, run)} is {run.state.value}, and a flow process of it is alive here",
            "the flow process, which leaves by itself; where it hangs, kill it: its pid is in "
            f"state/flows/{run_id}.lock",
            since=since,
            grace_s=run.grace_s,
        )


def _unreadable(seen: Snapshot) -> Iterator[Finding]:
    for row in seen.ledger.unreadable:
        mends = "its user, who cancels the run and submits it again; of a node, its worker at its "
        mends += "next start"
        what = f"{row} cannot be read: it counts as not there"
        yield seen.finding(Kind.UNREADABLE, row, what, mends)


def _size(size_bytes: float) -> str:
    return format_size(int(size_bytes))


_FITS = {
    RunState.WAITING: {PrefectView.SCHEDULED, PrefectView.AWAITING},
    # A claim comes before its start in Prefect, and has its own deadline.
    RunState.CLAIMED: {
        *(PrefectView.ACTIVE, PrefectView.PENDING, PrefectView.SCHEDULED, PrefectView.AWAITING)
    },
    RunState.RUNNING: {PrefectView.ACTIVE},
}
_PAUSED = {PrefectView.PAUSED, PrefectView.SUSPENDED}


def prefect_disagrees(seen: Snapshot) -> Iterator[Finding]:
    """Ends that Prefect has not acknowledged, and states that are not the ledger's."""
    for run in seen.ledger.runs.values():
        said = seen.prefect.get(run.run_id)
        if said is not None and said.view is PrefectView.UNKNOWN:
            said = None
        ended = run.state is RunState.ENDED
        finding = (_after_the_end if ended else _open)(seen, run, said)
        if finding is not None:
            yield finding


def _after_the_end(seen: Snapshot, run: SeenRun, said: SeenState | None) -> Finding | None:
    wanted = end_seen(run.exit_kind) if run.exit_kind is not None else PrefectView.UNKNOWN
    if said is None or said.view in {PrefectView.MISSING, wanted}:
        if run.told_at is not None:
            return None
        what = f"{named(run.run_id, run)} has ended, and it is not noted that Prefect knows"
        return _finding(seen, Kind.UNTOLD, run, run.since, what)
    if run.told_at is not None and said.view is PrefectView.SCHEDULED and not run.is_rank:
        what = f"{named(run.run_id, run)} has ended, and its user wants it again"
    else:
        what = (
            f"{named(run.run_id, run)} has ended: Prefect says {said.view.value}, "
            f"the ledger calls for {wanted.value}"
        )
    return _finding(seen, Kind.PREFECT, run, _later(run.since, said.since), what)


def _open(seen: Snapshot, run: SeenRun, said: SeenState | None) -> Finding | None:
    if said is None or said.view in _FITS.get(run.state, set()):
        return None
    if run.suspended and said.view in _PAUSED:
        return None
    what = f"{named(run.run_id, run)} is {run.state.value}: Prefect says {said.view.value}"
    return _finding(seen, Kind.PREFECT, run, _later(run.since, said.since), what)


def _finding(
    seen: Snapshot, kind: Kind, run: SeenRun, since: datetime | None, what: str
) -> Finding:
    return seen.finding(
        kind, run.run_id, what, janitor_of(run.node), since=since, grace_s=run.grace_s
    )


def _later(first: datetime | None, second: datetime | None) -> datetime | None:
    """The later of two moments, as far as they are known."""
    return max((each for each in (first, second) if each is not None), default=None)
