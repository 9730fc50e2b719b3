"""Jobs whose writers are told of some commits that they had failed, and who ask again."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headway.errors import LedgerUnreachable
from headway.ledger import Ledger
from headway.model.lease import Fence, Lease
from headway.model.progress import ProgressPoint
from headway.model.run import Measurement, RunState, StepState
from tests.support.leading import admit_in_term
from tests.support.ledger_faults import DEMAND, GONE, NODES, OK, TTL_S
from tests.support.on_ledger import enqueue

T = TypeVar("T")
POINTS = [ProgressPoint(float(at), at) for at in range(1, 4)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the ledger has to say of a run that is over."""

    run_id: str
    attempts: int
    grants: int


def carry_out(ledger: Ledger, run_id: str, chance: random.Random) -> Wanted:
    """One run from its submission to its end, each write repeated until it is answered."""
    attempts, grants = chance.randint(1, 3), 0
    _sure(lambda: enqueue(ledger, run_id))
    for attempt in range(1, attempts + 1):
        if chance.random() < 0.3:  # its flow could not be started
            fence = _claimed(ledger, run_id, attempt).fence
            _sure(lambda fence=fence: ledger.leases.give_back(fence))
            grants += 1
        fence = _claimed(ledger, run_id, attempt).fence
        grants += 1
        for write in _writes(ledger, fence, last=attempt == attempts):
            _sure(write)
    _sure(lambda: ledger.runs.told(run_id, attempts))
    return Wanted(run_id, attempts, grants)


def doubled(ledger: Ledger, wanted: Wanted) -> list[str]:
    """What the ledger has of the run that was not written exactly once."""
    run_id = wanted.run_id
    run, attempts = ledger.runs.get(run_id), ledger.attempts.of_run(run_id)
    leases, steps = ledger.leases.every_of_run(run_id), ledger.steps.of_run(run_id)
    numbers = list(range(1, wanted.attempts + 1))
    points = [ledger.progress.series(run_id, number) for number in numbers]
    right = {
        "its end": (run.state, run.attempt, run.exit) == (RunState.ENDED, wanted.attempts, OK),
        "told": run.told_end_at is not None,
        "attempts": [each.attempt for each in attempts] == numbers,
        "exits": [each.exit for each in attempts] == [GONE] * (wanted.attempts - 1) + [OK],
        "grants": len(leases) == wanted.grants,
        "live leases": ledger.leases.of_run(run_id) is None,
        "steps": [(each.attempt, each.state) for each in steps]
        == [(number, StepState.DONE) for number in numbers],
        "points": points == [POINTS] * wanted.attempts,
    }
    return [f"{run_id}: {what}" for what, is_right in right.items() if not is_right]


def _writes(ledger: Ledger, fence: Fence, *, last: bool) -> list[Callable[[], object]]:
    """What one attempt writes, in order."""
    return [
        lambda: ledger.leases.take_up(fence),
        lambda: ledger.steps.started(fence, "train"),
        lambda: ledger.runs.begin(fence, container="c", runtime="process", ttl_s=60.0),
        lambda: ledger.renewals.renew(
            NODES[0], "", containers={(fence.run_id, fence.attempt)}, flows=(),
            ttl_s=TTL_S, expire=True,
        ),
        lambda: ledger.progress.append(fence, POINTS, first=0),
        lambda: (
            ledger.runs.finish(fence, OK, Measurement()) if last
            else ledger.runs.requeue(fence, GONE)
        ),
        lambda: ledger.leases.release(fence),
        lambda: ledger.steps.ended(fence, "train", StepState.DONE),
    ]  # fmt: skip


def _claimed(ledger: Ledger, run_id: str, attempt: int) -> Lease:
    """The lease of a claim; where the answer was lost, what the ledger says of it."""
    while True:
        _once(
            lambda: admit_in_term(ledger, run_id, NODES[0], DEMAND, ttl_s=TTL_S, start_limit_s=60.0)
        )
        lease = _sure(lambda: ledger.leases.of_run(run_id))
        if lease is not None and lease.attempt == attempt:
            return lease


def _once(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except LedgerUnreachable:
        return None


def _sure(call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except LedgerUnreachable:
            continue
