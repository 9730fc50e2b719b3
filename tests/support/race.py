"""Processes that race for the last slot of a node, round after round."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

from sqlmodel import Session, col, select

from headway.ledger import Ledger, leases
from headway.ledger.tables import NodeRow
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.units import GIB
from tests.support.fence import fence_of
from tests.support.leading import admit_in_term
from tests.support.on_ledger import enqueue

NODE = Node("race", "gpu", Capacity(64.0, 10 * GIB))
DEMAND = Demand(6 * GIB)  # two of them do not fit


@dataclass(frozen=True, slots=True)
class Result:
    """What became of all rounds."""

    rounds: int
    overcommitted: int
    without_winner: int


def without_lock(session: Session, names: Sequence[str]) -> dict[str, NodeRow]:
    """`leases.lock_nodes` as it must not be: it only reads the rows."""
    rows = session.exec(select(NodeRow).where(col(NodeRow.name).in_(names)))
    return {row.name: row for row in rows}


def race(url: str, *, racers: int, rounds: int, locked: bool = True) -> Result:
    """Let *racers* processes ask for the node's last slot at the same moment, *rounds* times."""
    ledger = Ledger.open(url)
    ledger.nodes.register(NODE, boot_id="boot", worker_token="worker")
    for racer in range(racers):
        enqueue(ledger, _run_id(racer))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # what a racer imports takes a second of a core
    gate = context.Barrier(racers + 1)
    processes = [
        context.Process(target=_racer, args=(url, gate, racer, rounds, locked), daemon=True)
        for racer in range(racers)
    ]
    for process in processes:
        process.start()
    overcommitted = without_winner = 0
    for _ in range(rounds):
        gate.wait(120)  # all ask now …
        gate.wait(120)  # … and all have been answered
        live = ledger.leases.live(NODE.name)
        overcommitted += sum(lease.host_memory_bytes for lease in live) > 10 * GIB
        without_winner += not live
        for lease in live:
            ledger.leases.give_back(fence_of(ledger, lease.run_id))
    for process in processes:
        process.join(60)
    ledger.close()
    return Result(rounds, overcommitted, without_winner)


def _racer(url: str, gate: Barrier, racer: int, rounds: int, locked: bool) -> None:
    if not locked:
        leases.lock_nodes = without_lock
    ledger = Ledger.open(url)
    for _ in range(rounds):
        gate.wait(120)
        answer = admit_in_term(ledger, _run_id(racer), NODE.name, DEMAND)
        assert isinstance(answer, Lease) or answer.reason
        gate.wait(120)
    ledger.close()


def _run_id(racer: int) -> str:
    return f"racer-{racer}"
