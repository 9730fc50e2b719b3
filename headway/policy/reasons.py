"""Why a run waits, in words and numbers; when it may start is told apart, by `policy.outlook`."""

from dataclasses import replace

from headway.model.lease import Resource, Wait
from headway.policy.board import Board
from headway.policy.decide import Exceeded, Outcome, Quota
from headway.policy.fit import Ask, Headroom, Shortfall
from headway.policy.shortfall import wait_for, with_lost_gpus
from headway.units import format_size


def explain(
    outcome: Outcome,
    board: Board,
) -> Wait:
    """Why the run of *outcome* waits: the scarce resource, and one sentence with the numbers."""
    ask = outcome.ask
    if outcome.preempts:
        own = [one.ask.run_id for one in outcome.preempts if one.ask.team == ask.team]
        others = ["a run of another team"] if len(own) < len(outcome.preempts) else []
        names = ", ".join([*own, *others])
        return Wait(Resource.TURN, f"starts when {names}, of a lower priority, has stopped")
    if outcome.quota is not None:
        return _quota(ask, outcome.quota)
    if board.has_room(ask):
        return Wait(Resource.TURN, "would fit now, but would delay runs ahead of it")
    return _no_room(ask, board)


def _quota(ask: Ask, exceeded: Exceeded) -> Wait:
    who = f"team {ask.team}" if ask.team else "its team"
    if exceeded.user:
        who = f"{exceeded.user} of {who}"
    held, limits = exceeded.held, exceeded.limits
    text = f"{who} may have {limits.max_running} run(s) at once and has them"
    if exceeded.what is Quota.GPUS:
        gpus = ask.gpus * ask.nodes
        text = f"needs {gpus} GPU(s); {who} holds {held.gpus} of its {limits.max_gpus}"
    elif exceeded.what is Quota.HOST_MEMORY:
        text = (
            f"needs {format_size(ask.host.memory_bytes * ask.nodes)} of host memory; {who} holds "
            f"{format_size(held.host_memory_bytes)} of its "
            f"{format_size(limits.max_host_memory_bytes or 0)}"
        )
    return Wait(Resource.QUOTA, text)


def _no_room(ask: Ask, board: Board) -> Wait:
    """Why too few nodes of *board* have room for *ask*."""
    takers = [node for node in board.nodes if node.takes(ask)]
    nodes = [node for node in takers if node.admits(ask)]
    if len(nodes) < min(ask.nodes, len(takers)):
        full = [node for node in takers if not node.admits(ask)]
        return wait_for(Shortfall.DISK, ask, full)
    if sum(node.could_hold(ask) for node in nodes) < ask.nodes:
        shut = [node for node in board.nodes if ask.node in ("", node.name) and not node.takes(ask)]
        able = [node for node in shut if node.could_hold(ask)]
        if able or not nodes:
            return wait_for(Shortfall.CLOSED, ask, able or shut)
    if ask.nodes > 1:
        return with_lost_gpus(_gang(ask, nodes), nodes)
    lacks = {node.name: list(node.shortfalls(ask)) for node in nodes}
    for short in Shortfall:
        if all(short in each for each in lacks.values()):
            return wait_for(short, ask, nodes)
    # Each of them is free somewhere, but nowhere all at once.
    able = [node for node in nodes if node.could_hold(ask)] or nodes
    least = min((lacks[node.name] for node in able), key=len)
    near = [node for node in able if lacks[node.name] == least]
    wait = wait_for(least[0], ask, near)
    return replace(wait, reason=f"{wait.reason}, of the nodes that lack the least")


def _gang(ask: Ask, nodes: list[Headroom]) -> Wait:
    ready = [node.name for node in nodes if node.fits(ask)]
    each = f"{ask.gpus} GPU(s)" if ask.gpus else f"{format_size(ask.host.memory_bytes)}"
    have = f"{len(ready)} has" if len(ready) == 1 else f"{len(ready)} have"
    names = f" ({', '.join(ready[:3])})" if ready else ""
    return Wait(
        Resource.GPUS if ask.gpus else Resource.HOST_MEMORY,
        f"needs {ask.nodes} nodes at once with {each} on each; {have} room now{names}",
    )
