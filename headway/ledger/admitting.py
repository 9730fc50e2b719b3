"""What a run may be granted beside the room of its nodes: its turn, and its ports."""

from collections.abc import Mapping, Sequence

from sqlmodel import Session, col, select

from headway.ledger.array_rows import array_is_full
from headway.ledger.following import following
from headway.ledger.lease_rows import leases_of, live_leases
from headway.ledger.nodes import node_record
from headway.ledger.tables import LeasePortRow, NodeRow, RunRow
from headway.model.lease import ANY_PORT, Admit, Demand, Resource, Wait
from headway.model.node import NodePorts, PortUse
from headway.model.number_range import NumberRange
from headway.model.run import RunState
from headway.model.session import needs_free_port
from headway.policy.admission import judge
from headway.policy.headroom import compute_headroom
from headway.policy.ports import leased_ports


def held_up(session: Session, run: RunRow) -> Wait | None:
    """Why *run* may not start now, whatever room there is; None where it may."""
    if run.state is not RunState.WAITING or leases_of(session, run.run_id):
        return Wait(Resource.TURN, "it is claimed already, or its last attempt still ends")
    if run.suspended_at is not None:
        return Wait(Resource.TURN, "it is suspended: resume it on its page in Prefect")
    for _, followed in following(session, col(RunRow.run_id) == run.run_id):
        said = followed.says()
        if said is not None:
            return said if isinstance(said, Wait) else Wait(Resource.TURN, said.message)
    return array_is_full(session, run)


def admitted(
    session: Session, demand: Demand, nodes: Sequence[NodeRow], utilisation_limit: float
) -> list[Admit] | Wait:
    """What is granted on each of *nodes*, which are held; or why one of them has no room."""
    admits = []
    for row in nodes:
        known, live = node_record(row), live_leases(session, [row.name])
        headroom = compute_headroom(
            known.node, live, known.reading, utilisation_limit=utilisation_limit
        )
        decision = judge(demand, headroom)
        if isinstance(decision, Wait):
            return decision
        admits.append(decision)
    return admits


def ports_there(
    session: Session,
    run: RunRow,
    demand: Demand,
    nodes: Sequence[NodeRow],
    ranges: Mapping[str, NumberRange],
) -> dict[str, dict[int, int]] | Wait:
    """By node, the ports that *run* gets there, see `leased_ports`; or why there are none.

    A gang has a port more on each of *nodes*; so has a session, which serves it.
    """
    is_gang, own = len(nodes) > 1, ranges.get(run.team)
    wanted = [port for port in demand.ports if port != ANY_PORT]
    if is_gang or needs_free_port(run.job):
        wanted.append(ANY_PORT)
    ports: dict[str, dict[int, int]] = {}
    for node in nodes if wanted else ():
        there = node.ports or NodePorts()
        busy = node.reading.busy_ports if node.reading is not None else ()
        leased = select(LeasePortRow.port).where(LeasePortRow.node == node.name)
        found = leased_ports(
            wanted,
            own or there.free,
            published=there.use is PortUse.PUBLISHED and not is_gang,
            taken={*session.exec(leased), *busy},
            not_of=() if own else ranges.values(),
        )
        if found is None:
            why = f"all ports {own or there.free} of node {node.name} are taken"
            return Wait(Resource.PORTS, why)
        ports[node.name] = found
    return ports
