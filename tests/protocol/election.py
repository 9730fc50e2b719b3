"""Election and grants as a model: leaders of a pool, their passes, and agents that take grants up.

Beside `run_steps`, which begins at a lease: here is who grants it. A leader reads the pool, and
writes what it decided one step later; what happens between is any number of steps of others, so
that one that was stopped in the middle of its pass and goes on is every way of the search. Terms
have no numbers: a scheduler or a pass has that of now or one that is over, `NOW` or `OVER`.

A queue's limit of one run stands for all that a transaction does not ask again, and that only the
term of its leader guards. Nodes have room for one run each; their rows are locked by a grant.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.protocol.run_steps import Violation

NOW, OVER, NONE = "now", "over", "none"
WAITING, HELD, ENDED = "waiting", "held", "ended"
TOLD, TAKEN = "told", "taken"
BY_TERM, BY_NOTHING, BY_OWN_CLOCK, BY_NEWEST = "term", "nothing", "own clock", "newest term"
LIMIT, ATTEMPTS = 1, 2


class Pass(NamedTuple):
    """What a leader decided by what it read, and has not written yet."""

    term: str
    run: int
    node: int
    """Where the run is to be granted a place; -1 where its claim is to be given back."""
    same: bool
    """Whether the claim that it read is still the run's."""


class Scheduler(NamedTuple):
    """One process; where it is killed, the next one of its node."""

    term: str = NONE
    slept: bool = False
    """Its own clock was behind the database's since it led last."""
    decided: Pass | None = None


class Flow(NamedTuple):
    """What a node's agent has begun for a grant."""

    attempt: int
    holds: bool
    """Whether the claim that it remembers is still the run's."""
    phase: str


class Run(NamedTuple):
    """One run with its lease."""

    state: str = WAITING
    attempt: int = 1
    node: int = -1
    taken: bool = False
    overdue: bool = False
    flows: tuple[Flow | None, ...] = ()
    """By node."""
    refused: tuple[bool, ...] = ()
    """By node: since what others use there changed last."""


class Node(NamedTuple):
    """One node."""

    up: bool = True
    full: bool = False
    """Of what others use there, which the ledger does not know by itself."""
    said_full: bool = False
    """The same as the ledger has it."""


class State(NamedTuple):
    """All of it."""

    leader: int
    """The scheduler whose term it is; -1 before the first."""
    gone: bool
    """That process was killed."""
    left: int
    """Of the term, by the database's clock."""
    schedulers: tuple[Scheduler, ...]
    nodes: tuple[Node, ...]
    runs: tuple[Run, ...]
    faults: int


@dataclass(frozen=True)
class Rules:
    """How large the model is, and the rules of the protocol; each can be broken."""

    schedulers: int = 2
    nodes: int = 2
    runs: int = 2
    faults: int = 1
    """So many: schedulers or nodes killed, memory taken by others."""
    come_back: bool = True
    """Machines that died do: else those that are left have to do."""

    # What the protocol says. The value that is not the default is a bug.
    grants_by: str = BY_TERM
    waits_for_expiry: bool = True
    """Nobody takes a term that is not over yet."""
    fence_take_up: bool = True
    compares_claims: bool = True
    """A claim is given back only while it is as it was read."""
    claims_end: bool = True
    refusal_reports: bool = True
    """A refusal comes with a newer reading than the one that the grant went by."""


class Step(NamedTuple):
    """One step; *who* and *run* are -1 where nobody's."""

    action: str
    who: int
    run: int
    state: State


def first_state(rules: Rules) -> State:
    """Nobody leads, every run waits."""
    run = Run(flows=(None,) * rules.nodes, refused=(False,) * rules.nodes)
    return State(
        -1, False, 0, (Scheduler(),) * rules.schedulers, (Node(),) * rules.nodes,
        (run,) * rules.runs, rules.faults,
    )  # fmt: skip


def with_scheduler(state: State, who: int, each: Scheduler) -> State:
    """*state* with that of one process."""
    return state._replace(schedulers=_with(state.schedulers, who, each))


def with_node(state: State, node: int, seen: Node) -> State:
    """*state* with that of one node."""
    return state._replace(nodes=_with(state.nodes, node, seen))


def with_run(state: State, number: int, run: Run) -> State:
    """*state* with that of one run."""
    return state._replace(runs=_with(state.runs, number, run))


def with_flow(state: State, number: int, node: int, flow: Flow | None) -> State:
    """*state* with what one node's agent has of one run."""
    run = state.runs[number]
    return with_run(state, number, run._replace(flows=_with(run.flows, node, flow)))


def released(state: State, number: int, becomes: str) -> State:
    """Its claim is no more: whoever remembers it holds nothing."""
    run = state.runs[number]
    if run.state == ENDED:
        raise Violation("a run ended twice")
    flows = tuple(flow and flow._replace(holds=False) for flow in run.flows)
    free = run._replace(state=becomes, node=-1, taken=False, overdue=False, flows=flows)
    schedulers = tuple(
        each._replace(decided=each.decided._replace(same=False))
        if each.decided is not None and each.decided.run == number
        else each
        for each in state.schedulers
    )
    return with_run(state, number, free)._replace(schedulers=schedulers)


def _with(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def is_over(state: State) -> bool:
    """Every run has ended, and nothing of it is left anywhere."""
    return all(run.state == ENDED and not any(run.flows) for run in state.runs)
