"""The steps of the model of elections: of schedulers, agents, nodes and the clock."""

from collections.abc import Iterator

from tests.protocol.election import (
    ATTEMPTS,
    BY_OWN_CLOCK,
    ENDED,
    HELD,
    LIMIT,
    NONE,
    NOW,
    OVER,
    TAKEN,
    TOLD,
    WAITING,
    Flow,
    Node,
    Pass,
    Rules,
    Run,
    Scheduler,
    State,
    Step,
    released,
    with_flow,
    with_node,
    with_run,
    with_scheduler,
)  # fmt: skip
from tests.protocol.run_steps import Violation


def steps(state: State, rules: Rules) -> Iterator[Step]:
    """Every step from *state*."""
    for who in range(rules.schedulers):
        yield from _contends(state, who, rules)
        yield from _passes(state, who, rules)
    for node in range(rules.nodes):
        for run in range(rules.runs):
            if state.nodes[node].up:
                yield from _of_agent(state, node, run, rules)
        yield from _of_node(state, node, rules)
    yield from _ticks(state, rules)


def _contends(state: State, who: int, rules: Rules) -> Iterator[Step]:
    mine = state.schedulers[who]
    if state.leader == who and not state.gone:
        if mine.term == NOW:
            again = with_scheduler(state, who, mine._replace(slept=False))
            yield Step("goes on", who, -1, again._replace(left=1))
        return
    own = state.leader == who  # of a process before, which was killed
    if state.left > 0 and not own and rules.waits_for_expiry:
        yield Step("stands by", who, -1, with_scheduler(state, who, mine._replace(term=NONE)))
        return
    if state.left > 0 and not own and not state.gone:
        raise Violation("a term was taken that was not over")
    others = tuple(_deposed(each) for each in state.schedulers)
    begun = state._replace(leader=who, gone=False, left=1, schedulers=others)
    leads = others[who]._replace(term=NOW, slept=False)
    yield Step("leads", who, -1, with_scheduler(begun, who, leads))


def _deposed(each: Scheduler) -> Scheduler:
    term = OVER if each.term == NOW else each.term
    decided = each.decided and each.decided._replace(term=OVER)
    return each._replace(term=term, decided=decided)


def _passes(state: State, who: int, rules: Rules) -> Iterator[Step]:
    mine = state.schedulers[who]
    if state.faults and mine.term != NONE:
        killed = with_scheduler(state, who, Scheduler())._replace(faults=state.faults - 1)
        yield Step("is killed", who, -1, killed._replace(gone=state.gone or state.leader == who))
    if mine.decided is not None:
        yield _write(state, who, mine, mine.decided, rules)
        return
    if mine.term == NONE:
        return
    for number, run in enumerate(state.runs):
        for decided in _decisions(state, number, run, mine.term, rules):
            reads = mine._replace(decided=decided)
            yield Step("decides", who, number, with_scheduler(state, who, reads))


def _decisions(state: State, number: int, run: Run, term: str, rules: Rules) -> Iterator[Pass]:
    held = [each.node for each in state.runs if each.state == HELD]
    if run.state == WAITING and len(held) < LIMIT:
        for node, seen in enumerate(state.nodes):
            if seen.up and not seen.said_full and node not in held:
                yield Pass(term, number, node, same=False)
    late = run.overdue or not state.nodes[run.node].up
    if run.state == HELD and not run.taken and late and rules.claims_end:
        yield Pass(term, number, -1, same=True)


def _write(state: State, who: int, mine: Scheduler, decided: Pass, rules: Rules) -> Step:
    after = with_scheduler(state, who, mine._replace(decided=None))
    number, run = decided.run, state.runs[decided.run]
    if decided.node < 0:
        if not decided.same or run.state != HELD or (run.taken and rules.compares_claims):
            return Step("finds it changed", who, number, after)
        if run.taken:
            raise Violation("a claim was given back that a flow process had taken up")
        return Step("gives back", who, number, released(after, number, WAITING))
    if not _accepts(mine, decided, rules):
        return Step("is refused", who, number, after)
    held = [each.node for each in state.runs if each.state == HELD]
    taken = decided.node in held or state.nodes[decided.node].said_full
    if run.state != WAITING or taken:
        return Step("finds it changed", who, number, after)
    if len(held) >= LIMIT:
        raise Violation(f"{len(held) + 1} runs of a queue with a limit of {LIMIT}")
    granted = run._replace(state=HELD, node=decided.node, taken=False, overdue=False)
    return Step("grants", who, number, with_run(after, number, granted))


def _accepts(mine: Scheduler, decided: Pass, rules: Rules) -> bool:
    match rules.grants_by:
        case "term":
            return decided.term == NOW
        case "newest term":
            return mine.term == NOW
        case "own clock":
            return decided.term == NOW or mine.slept
        case _:
            return True


def _of_agent(state: State, node: int, number: int, rules: Rules) -> Iterator[Step]:
    run, seen = state.runs[number], state.nodes[node]
    flow, here = run.flows[node], run.state == HELD and run.node == node
    if flow is None:
        if here:  # a grant, or a run whose flow process was lost with the machine
            told = Flow(run.attempt, True, TAKEN if run.taken else TOLD)
            yield Step("begins", node, number, with_flow(state, number, node, told))
        return
    gone = with_flow(state, number, node, None)
    if flow.phase == TAKEN:
        if flow.holds and run.state == HELD:
            yield Step("ends", node, number, released(gone, number, ENDED))
        else:
            yield Step("leaves", node, number, gone)
        return
    valid = flow.holds and flow.attempt == run.attempt and here
    if not valid and (rules.fence_take_up or run.state != HELD):
        yield Step("finds it lost", node, number, gone)
        return
    if not valid:
        raise Violation("a flow process took up the claim of another one")
    if not seen.full:
        taken = with_flow(state, number, node, flow._replace(phase=TAKEN))
        kept = taken.runs[number]._replace(taken=True, overdue=False)
        yield Step("takes up", node, number, with_run(taken, number, kept))
        return
    if run.refused[node]:
        raise Violation("a grant was refused, granted again and refused")
    refused = tuple(each or at == node for at, each in enumerate(run.refused))
    back = released(gone, number, WAITING)
    back = with_run(back, number, back.runs[number]._replace(refused=refused))
    if rules.refusal_reports:
        back = with_node(back, node, seen._replace(said_full=True))
    yield Step("refuses", node, number, back)


def _of_node(state: State, node: int, rules: Rules) -> Iterator[Step]:
    seen = state.nodes[node]
    if not seen.up:
        if rules.come_back:
            yield Step("is back", node, -1, with_node(state, node, seen._replace(up=True)))
        for number, run in enumerate(state.runs):
            if run.state == HELD and run.node == node and run.taken:
                yield Step("is lost", node, number, _lost(state, number))
        return
    if seen.said_full != seen.full:
        told = with_node(state, node, seen._replace(said_full=seen.full))
        yield Step("reports", node, -1, told)
    if seen.full:
        yield Step("has room", node, -1, _changed(state, node, seen._replace(full=False)))
    if not state.faults:
        return
    fewer = state._replace(faults=state.faults - 1)
    if not seen.full:
        yield Step("is full", node, -1, _changed(fewer, node, seen._replace(full=True)))
    dead = with_node(fewer, node, seen._replace(up=False))
    for number in range(len(state.runs)):
        dead = with_flow(dead, number, node, None)
    yield Step("dies", node, -1, dead)


def _changed(state: State, node: int, seen: Node) -> State:
    """Others use more there, or less: what was refused may be refused again."""
    runs = tuple(
        run._replace(refused=tuple(each and at != node for at, each in enumerate(run.refused)))
        for run in state.runs
    )
    return with_node(state, node, seen)._replace(runs=runs)


def _lost(state: State, number: int) -> State:
    run = state.runs[number]
    if run.attempt == ATTEMPTS:
        return released(state, number, ENDED)
    again = released(state, number, WAITING)
    return with_run(again, number, again.runs[number]._replace(attempt=run.attempt + 1))


def _ticks(state: State, rules: Rules) -> Iterator[Step]:
    runs = tuple(run._replace(overdue=run.state == HELD and not run.taken) for run in state.runs)
    later = state._replace(left=0, runs=runs)
    if later != state:
        yield Step("tick", -1, -1, later)
    if rules.grants_by == BY_OWN_CLOCK:
        asleep = (each._replace(slept=each.term != NONE) for each in state.schedulers)
        yield Step("tick", -1, -1, later._replace(schedulers=tuple(asleep)))
