"""The steps of a way through the model, carried out on a real ledger, and compared.

The model knows of time, containers and processes; the ledger only hears what they
ask of it. So each step that asks something of the ledger is the real call, with the
fence that the real flow process would have, and a step that does not is nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

from headway.errors import LeaseLost
from headway.ledger import Ledger
from headway.ledger.errors import IllegalTransition
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Fence, Lease
from headway.model.node import Capacity, Node
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.units import GIB
from tests.protocol.values import CANCELLED, ENDED, LEAVING, LOST, OK, STARTING, Row, Rules
from tests.protocol.walk import NO_RUN, Move, walk
from tests.support.fence import fence_of
from tests.support.leading import admit_in_term

SIZES = (Rules(nodes=2, runs=2), Rules(nodes=2, runs=2, told_to_prefect=False))
STEPS = 60
_DEMAND = Demand(6 * GIB)
"""As much as makes one lease fill a node."""
_TTL_S = 900.0
_EXITS = {
    OK: Exit(ExitKind.OK, 0, "done"),
    LOST: Exit(ExitKind.INFRASTRUCTURE, None, "its container is gone"),
    CANCELLED: Exit(ExitKind.CANCELLED, None, "cancelled"),
}


class Kept(NamedTuple):
    """What the ledger keeps of a run, as far as the model knows of it."""

    state: str
    attempt: int
    end: str
    told: bool
    lease: tuple[int, int] | None
    """Node and attempt."""
    waits_for_its_flow: bool


def replay_ways(ledger: Ledger, seeds: Iterable[int]) -> Iterator[int]:
    """Go a random way through the model for each seed; after each, how often the ledger was asked.

    Raises:
        AssertionError: The ledger kept something else than the model has.
    """
    for seed in seeds:
        rules, asked = SIZES[seed % len(SIZES)], 0
        replay = Replay(ledger, rules)
        for move in walk(rules, seed, STEPS):
            if replay.carry_out(move):
                asked += 1
                wanted = [expected(row) for row in move.after.rows]
                assert replay.kept() == wanted, f"way {seed}: {move}"
        replay.close()
        yield asked


class Replay:
    """One way through the model on a ledger."""

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self._ledger, self._rules = ledger, rules
        way = uuid4().hex[:12]
        self._nodes = [f"{way}-{node}" for node in range(rules.nodes)]
        self._runs = [f"{way}-run-{run}" for run in range(rules.runs)]
        self._fences: dict[tuple[int, int], Fence] = {}
        """What the flow process of a run on a node remembers."""
        for node in range(rules.nodes):
            self._join(node)
        for run_id in self._runs:
            self._enqueue(run_id)

    def _join(self, node: int) -> None:
        value = Node(self._nodes[node], "gpu", Capacity(64.0, 10 * GIB * self._rules.capacity))
        self._ledger.nodes.register(value, boot_id="boot", worker_token="worker")

    def _enqueue(self, run_id: str) -> None:
        self._ledger.runs.enqueue(
            run_id,
            {},
            name=run_id,
            owner="me",
            team="default",
            pool="gpu",
            priority=0,
            submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        )

    def carry_out(self, move: Move) -> bool:
        """Ask the ledger what *move* asks of it; False where that is nothing."""
        if move.run == NO_RUN:
            return self._of_node(move)
        return self._of_claim(move) or self._of_flow(move) or self._of_janitor(move)

    def _of_claim(self, move: Move) -> bool:
        leases, run_id = self._ledger.leases, self._runs[move.run]
        fence = self._fences.get((move.run, move.node))
        match move.action:
            case "admit":
                self._admit(move)
            case "flow restarts":
                self._fences[move.run, move.node] = fence_of(self._ledger, run_id)
            case "take up":
                leases.take_up(_known(fence))
            case "flow leaves" if _phase(move) == STARTING:
                with suppress(LeaseLost):
                    leases.take_up(_known(fence))
            case "claim ends":
                assert leases.give_back(fence_of(self._ledger, run_id))
            case "renew":
                self._renew(run_id)
            case _:
                return False
        return True

    def _of_flow(self, move: Move) -> bool:
        leases, runs = self._ledger.leases, self._ledger.runs
        fence = self._fences.get((move.run, move.node))
        match move.action:
            case "begin":
                runs.begin(_known(fence), container="c", runtime="process", ttl_s=60.0)
            case "begin refused":
                self._refused(_known(fence))
            case "give back":
                assert leases.give_back(_known(fence))
            case "finish" | "finish refused" | "requeue" | "requeue refused":
                self._conclude(_known(fence), ok="finish" in move.action, stale=_is_stale(move))
            case "release" | "flow leaves" if _phase(move) == LEAVING:
                leases.release(_known(fence))
            case _:
                return False
        return True

    def _of_janitor(self, move: Move) -> bool:
        ledger, run_id = self._ledger, self._runs[move.run]
        match move.action:
            case "cancel":
                ledger.runs.finish(fence_of(ledger, run_id), _EXITS[CANCELLED], Measurement())
            case "janitor requeues":
                self._conclude(fence_of(ledger, run_id), ok=False)
            case "janitor releases":
                ledger.leases.release(self._held(run_id).fence)
            case "see":
                assert ledger.runs.told(run_id, move.before.rows[move.run].attempt)
            case "retry":
                assert ledger.runs.retry(run_id, move.before.rows[move.run].attempt)
            case _:
                return False
        return True

    def _admit(self, move: Move) -> None:
        lease = admit_in_term(
            self._ledger,
            self._runs[move.run],
            self._nodes[move.node],
            _DEMAND,
            ttl_s=_TTL_S,
            start_limit_s=_TTL_S,
        )
        assert isinstance(lease, Lease), lease
        if not move.lost:
            self._fences[move.run, move.node] = lease.fence

    def _renew(self, run_id: str) -> None:
        """As the guard of the node that has it."""
        lease = self._held(run_id)
        answer = self._ledger.renewals.renew(
            lease.node, "", containers=(), flows={run_id}, ttl_s=_TTL_S, expire=True
        )
        assert answer.renewed.keys() == {(run_id, lease.attempt)}

    def _held(self, run_id: str) -> Lease:
        lease = self._ledger.leases.of_run(run_id)
        assert lease is not None
        return lease

    def _of_node(self, move: Move) -> bool:
        match move.action:
            case "node remove":
                for run, row in enumerate(move.before.rows):
                    if row.lease is not None and row.lease.node == move.node:
                        self._taken_away(self._runs[run])
                self._ledger.leases.release_node(self._nodes[move.node])
                assert self._ledger.nodes.remove(self._nodes[move.node])
            case "node joins":
                self._join(move.node)
            case _:
                return False
        return True

    def _taken_away(self, run_id: str) -> None:
        if self._ledger.runs.get(run_id).state in (RunState.CLAIMED, RunState.RUNNING):
            self._conclude(fence_of(self._ledger, run_id), ok=False)

    def _conclude(self, fence: Fence, *, ok: bool, stale: bool = False) -> None:
        """As the end of an attempt is concluded: it is over, or the next one waits."""
        runs = self._ledger.runs
        with suppress(*((LeaseLost, IllegalTransition) if stale else ())):
            if ok:
                runs.finish(fence, _EXITS[OK], Measurement())
            elif fence.attempt < self._rules.attempts:
                runs.requeue(fence, _EXITS[LOST])
            else:
                runs.finish(fence, _EXITS[LOST], Measurement())

    def _refused(self, fence: Fence) -> None:
        try:
            self._ledger.runs.begin(fence, container="stale", runtime="process", ttl_s=60.0)
        except (LeaseLost, IllegalTransition):
            return
        raise AssertionError(f"the ledger let {fence} begin")

    def kept(self) -> list[Kept]:
        """What the ledger keeps of each run."""
        records = self._ledger.runs.of(self._runs)
        live = {lease.run_id: lease for lease in self._ledger.leases.live()}
        return [_kept(records[run_id], live.get(run_id), self._nodes) for run_id in self._runs]

    def close(self) -> None:
        """Leave no lease in the ledger, which the next way reads."""
        for node in self._nodes:
            self._ledger.leases.release_node(node)


def expected(row: Row) -> Kept:
    """What the ledger has to keep of a run that the model has so."""
    lease = row.lease
    over = row.state == ENDED
    return Kept(
        row.state,
        row.attempt,
        row.end if over else "",
        row.told,
        None if lease is None else (lease.node, lease.attempt),
        lease is not None and lease.claim > 0 and not over,
    )


def _kept(record: RunRecord, lease: Lease | None, nodes: list[str]) -> Kept:
    over = record.state is RunState.ENDED
    ends = {exit_.kind: end for end, exit_ in _EXITS.items()}
    return Kept(
        record.state.value,
        record.attempt,
        ends[record.exit.kind] if over else "",
        record.told_end_at is not None,
        None if lease is None else (nodes.index(lease.node), lease.attempt),
        lease is not None and lease.start_by is not None and not over,
    )


def _is_stale(move: Move) -> bool:
    """Whether another one has the run by now; a flow that only repeats itself is answered.

    A later attempt may have ended while this one, which is over, still has its lease: the user
    cancelled the run between two tries of one call.
    """
    row = move.before.rows[move.run]
    flow = row.cells[move.node].flow
    ended_later = flow is not None and row.state == ENDED and row.attempt != flow.attempt
    return flow is None or not flow.holds or ended_later


def _phase(move: Move) -> str:
    if move.node < 0:
        return ""
    flow = move.before.rows[move.run].cells[move.node].flow
    return "" if flow is None else flow.phase


def _known(fence: Fence | None) -> Fence:
    assert fence is not None, "the model has a flow process that was never started"
    return fence
