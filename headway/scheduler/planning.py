"""The plan of a pool at one moment, from what waits there and what is known."""

from collections.abc import Callable, Collection, Sequence

from headway.ledger import Ledger
from headway.ledger.pools import PoolSnapshot
from headway.policy.fit import WaitingRun
from headway.policy.plan import Plan, plan
from headway.policy.settings import PolicySettings
from headway.scheduler.fair_share import TeamUsage
from headway.scheduler.front import due, held_back
from headway.scheduler.limits import Gates, read_gates
from headway.scheduler.snapshot import Known, node_view, read_known, running_run
from headway.scheduler.waiting import Waiting
from headway.site import Site


def read_pool(
    ledger: Ledger, pool: str, waiting: Waiting, settings: PolicySettings, gates: Gates
) -> PoolSnapshot:
    """The rows of *pool* now; of the runs that wait those that *waiting* does not know yet."""
    return ledger.pools.snapshot(
        pool,
        waiting.attempts(),
        overtaken_from=settings.overtake_limit,
        priorities=gates.priorities,
    )


def make_plan(
    waiting: Waiting,
    seen: PoolSnapshot,
    known: Known,
    left_out: Collection[str],
    also: Sequence[WaitingRun] = (),
) -> Plan:
    """The plan for *waiting* and for *also*, without those that are *left_out*."""
    if waiting.gates.pool_paused:
        return Plan()
    settings, gates = waiting.sorted.settings, waiting.gates
    teams = {entry.run.team: 0.0 for entry in waiting.entries.values()}
    usage = teams | dict(known.usage)
    front = waiting.front(usage, due(waiting, seen, left_out, settings), left_out)
    runs = [waiting.entries[run.run_id].with_length(run, known.usual) for run in front]
    return plan(
        [node_view(record, seen) for record in seen.nodes],
        [*runs, *also],
        [running_run(r, seen, gates, known.said.get(r.run_id), known.usual) for r in seen.holders],
        now=seen.at,
        settings=settings,
        usage=usage,
    )


def preview(site: Site, pool: str = "") -> Callable[[Sequence[WaitingRun]], Plan]:
    """The plan of this moment for any runs in addition; grants and writes nothing.

    The pool is read only once, for several questions.

    Args:
        site: Where.
        pool: The work pool; empty for this node's.
    """
    pool = pool or site.settings.pool
    settings, gates, waiting = site.policy_settings, read_gates(site.ledger, pool), Waiting()
    seen = read_pool(site.ledger, pool, waiting, settings, gates)
    nodes = {record.node.name for record in seen.nodes}
    waiting.sort_by(settings, gates, nodes)
    for record in seen.changed:
        waiting.put(record, nodes)
    known = read_known(site.ledger, seen, TeamUsage(), settings)
    left_out = held_back(waiting, seen)
    return lambda also: make_plan(waiting, seen, known, left_out, also)
