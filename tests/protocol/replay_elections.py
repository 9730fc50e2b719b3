"""Ways through the model of elections and grants, carried out on a real ledger, and compared."""

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from headway.errors import LeaseLost
from headway.ledger import Ledger
from headway.ledger.errors import TermOver
from headway.ledger.tables import LeaderRow
from headway.model.lease import Demand, Fence, Lease
from headway.model.node import Capacity, HostReading, Node, NodeReading
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.model.term import Term
from headway.units import GIB
from tests.protocol.election import ENDED, WAITING, Rules, Run, State, Step, first_state
from tests.protocol.election_steps import steps

RULES = Rules(faults=3)
STEPS = 60
_DEMAND, _MEMORY = Demand(6 * GIB), 10 * GIB
_LOST = Exit(ExitKind.INFRASTRUCTURE, None, "its node is lost")
_RARE = {"tick": 0.5, "is killed": 0.2, "dies": 0.2, "reports": 0.2, "has room": 0.1}


def replay_elections(ledger: Ledger, seeds: Iterable[int]) -> Iterator[set[str]]:
    """Go a random way for each seed; after each, which steps it has had.

    Raises:
        AssertionError: The ledger answered or kept something else than the model has.
    """
    for seed in seeds:
        replay, chance, done = ElectionReplay(ledger), random.Random(seed), set[str]()
        state = first_state(RULES)
        for _ in range(STEPS):
            if not (possible := list(steps(state, RULES))):
                break
            (step,) = chance.choices(possible, [_RARE.get(each.action, 1.0) for each in possible])
            replay.carry_out(state, step)
            state = step.state
            assert replay.kept() == expected(state), f"way {seed}: {step}"
            done.add(step.action)
        yield done


def expected(state: State) -> list[tuple[str, int, int, bool]]:
    """What the ledger has to keep of each run: its state, attempt, node, and who waits for it."""
    return [
        (run.state, run.attempt, run.node, run.node >= 0 and not run.taken) for run in state.runs
    ]


class ElectionReplay:
    """One way through the model, in a pool of its own."""

    def __init__(self, ledger: Ledger) -> None:
        way = uuid4().hex[:12]
        self._ledger, self._pool = ledger, f"pool-{way}"
        self._nodes = [f"{way}-{node}" for node in range(RULES.nodes)]
        self._runs = [f"{way}-run-{run}" for run in range(RULES.runs)]
        self._holders = [uuid4().hex for _ in range(RULES.schedulers)]
        self._terms: dict[int, Term] = {}
        """In which a scheduler leads, for all that it knows."""
        self._decided: dict[int, tuple[Term, Lease | None]] = {}
        """In which term, and by which claim that it read."""
        self._fences: dict[tuple[int, int], Fence] = {}
        for name in self._nodes:
            node = Node(name, self._pool, Capacity(64.0, _MEMORY))
            ledger.nodes.register(node, boot_id="boot", worker_token=name)
            ledger.nodes.heartbeat(name, name, self._reading(full=False))
        for run_id in self._runs:
            ledger.runs.enqueue(
                run_id, {}, name=run_id, owner="me", team="default", pool=self._pool, priority=0,
                submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
            )  # fmt: skip

    def _reading(self, *, full: bool) -> NodeReading:
        return NodeReading(self._ledger.now(), HostReading(_MEMORY, _MEMORY * full, 0.0, GIB))

    def carry_out(self, before: State, step: Step) -> None:
        """Ask the ledger what *step* asks of it, and see that it answers so."""
        match step.action:
            case "leads" | "goes on" | "stands by":
                self._contend(step)
            case "tick":
                with self._ledger._database.transaction() as session:
                    row = session.get(LeaderRow, self._pool)
                    if row is not None:
                        row.expires_at -= timedelta(hours=1)
            case "is killed":
                self._holders[step.who] = uuid4().hex
            case "decides":
                lease = self._ledger.leases.of_run(self._runs[step.run])
                self._decided[step.who] = self._terms[step.who], lease
            case "grants" | "is refused" | "gives back" | "finds it changed":
                self._write(before, step)
            case _:
                self._of_node(before, step)

    def _contend(self, step: Step) -> None:
        who, holder = step.who, self._holders[step.who]
        leader = self._ledger.leaders.contend(self._pool, f"machine {who}", holder, ttl_s=600.0)
        assert (leader.holder == holder) == (step.action != "stands by"), step
        if leader.holder == holder:
            known = self._terms.get(who)
            assert step.action == "leads" or leader.term == known, step
            self._terms[who] = leader.term

    def _write(self, before: State, step: Step) -> None:
        run_id, (term, lease) = self._runs[step.run], self._decided.pop(step.who)
        decided = before.schedulers[step.who].decided
        assert decided is not None
        if decided.node < 0:
            assert lease is not None
            back = False
            with suppress(LeaseLost):
                back = self._ledger.leases.give_back(lease.fence, start_by=lease.start_by)
            # Who asks twice is answered as before.
            assert back or step.action == "finds it changed", step
            return
        try:
            answer = self._ledger.leases.admit(
                run_id, self._nodes[decided.node], _DEMAND, term=term, ttl_s=600.0,
                start_limit_s=30.0,
            )  # fmt: skip
        except TermOver:
            assert step.action == "is refused", step
        else:
            assert isinstance(answer, Lease) == (step.action == "grants"), (step, answer)

    def _of_node(self, before: State, step: Step) -> None:
        leases, runs, node = self._ledger.leases, self._ledger.runs, step.who
        name, seen = self._nodes[node], step.state.nodes[node]
        fence = self._fences.get((step.run, node))
        match step.action:
            case "begins":
                lease = leases.of_run(self._runs[step.run])
                assert lease is not None
                self._fences[step.run, node] = lease.fence
            case "takes up":
                leases.take_up(_known(fence))
            case "finds it lost":
                with suppress(LeaseLost):
                    leases.take_up(_known(fence))
                    raise AssertionError(step)
            case "refuses":
                full = self._reading(full=True)
                leases.resize(_known(fence), _DEMAND, reading=full, ttl_s=600.0)
                assert leases.give_back(_known(fence))
            case "ends":
                runs.finish(_known(fence), Exit(ExitKind.OK, 0, "done"), Measurement())
                leases.release(_known(fence))
            case "leaves":
                with suppress(LeaseLost):
                    runs.finish(_known(fence), Exit(ExitKind.OK, 0, "late"), Measurement())
                leases.release(_known(fence))
            case "is lost":
                self._lost(step.run, before.runs[step.run])
            case "reports":
                self._ledger.nodes.heartbeat(name, name, self._reading(full=seen.said_full))

    def _lost(self, number: int, run: Run) -> None:
        lease = self._ledger.leases.of_run(self._runs[number])
        assert lease is not None
        if run.attempt == 1:
            self._ledger.runs.requeue(lease.fence, _LOST)
        else:
            self._ledger.runs.finish(lease.fence, _LOST, Measurement())
        self._ledger.leases.release(lease.fence)

    def kept(self) -> list[tuple[str, int, int, bool]]:
        """See `expected`."""
        records = self._ledger.runs.of(self._runs)
        live = {lease.run_id: lease for lease in self._ledger.leases.live()}
        found = []
        for run_id in self._runs:
            lease, record = live.get(run_id), records[run_id]
            node = -1 if lease is None else self._nodes.index(lease.node)
            state = {RunState.WAITING: WAITING, RunState.ENDED: ENDED}.get(record.state, "held")
            untaken = lease is not None and lease.start_by is not None
            found.append((state, record.attempt, node, untaken))
        return found


def _known(fence: Fence | None) -> Fence:
    assert fence is not None, "the model has a flow process that was never started"
    return fence
