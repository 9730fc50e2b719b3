"""The queue from the ledger's rows: alike on every node, and after every restart."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headway.estimate.claims import Claims
from headway.estimate.usual import Lasted, Usual, kind_of
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.lease import Demand, Sharing
from headway.model.node import Capacity, Gpu, Node
from headway.model.run import Prediction, RunState
from headway.model.turn import Turn, VirtualClock
from headway.policy.fit import WaitingRun
from headway.policy.queue import Queue
from headway.policy.settings import PolicySettings, TeamSettings
from headway.scheduler.front import new_turns, queue_of
from headway.scheduler.limits import Gates
from headway.scheduler.snapshot import Known
from headway.scheduler.waiting import Waiting
from headway.units import GIB

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
KNOWN = Known({}, Usual(()))
NODE = Node("a", "gpu", Capacity(16.0, 64 * GIB, (Gpu("u", 0, "A100", 24 * GIB),)))


def record(run_id: str, minutes: int, *, team: str = "red", **changes: object) -> RunRecord:
    nothing = dict.fromkeys(RunRecord.__dataclass_fields__)
    return RunRecord(
        **nothing
        | {
            "run_id": run_id,
            "name": run_id,
            "owner": "ada",
            "team": team,
            "job": {"image": "i", "name": run_id, "max_runtime": "1h"},
            "attempt": 1,
            "queue": "default",
            "priority": 0,
            "state": RunState.WAITING,
            "submitted_at": NOON - timedelta(minutes=minutes),
            "demand": Demand(GIB, 1.0, gpus=1, gpu_memory_bytes=GIB, sharing=Sharing.WHOLE),
            "prediction": Prediction(600.0, 600.0, 600.0, basis="3 run(s) of the same job"),
        }
        | changes
    )


RECORDS = [record("b", 5), record("a", 9), record("c", 1, team="blue")]


def seen(turns: dict[str, Turn], clock: VirtualClock | None, *holders: RunRecord) -> PoolSnapshot:
    node = NodeRecord(NODE, "boot", "token", NOON, None)
    waiting = {each.run_id: (1, 0) for each in RECORDS}
    return PoolSnapshot(NOON, (node,), (), holders, waiting, turns, clock, ())


def made(records: list[RunRecord], rows: PoolSnapshot, **teams: TeamSettings) -> Queue[WaitingRun]:
    waiting = Waiting()
    waiting.go_by(PolicySettings(teams=teams), Gates(), ())
    waiting.follow(rows)
    for each in records:
        waiting.put(each, (1, 0), ())
    return queue_of(waiting, rows, KNOWN)


def test_plans_of_two_who_ask_at_once_share_no_run() -> None:
    """The one would plan with what the other is giving them."""
    waiting = Waiting()
    waiting.go_by(PolicySettings(), Gates(), ())
    for each in RECORDS:
        waiting.put(each, (1, 0), ())
    queue_of(waiting.copy(), seen({}, None), KNOWN)
    assert all(entry.run.tag is None for entry in waiting.entries.values())


def test_every_node_computes_the_same_whatever_the_order_of_its_rows() -> None:
    rows = seen({}, None)
    one, other = made(RECORDS, rows), made(RECORDS[::-1], rows)
    assert new_turns(one, rows.turns) == new_turns(other, rows.turns)
    assert [r.run_id for r in one.front(NOON.timestamp())] == [
        r.run_id for r in other.front(NOON.timestamp())
    ]


def test_who_came_first_is_promised_the_first_start() -> None:
    turns = new_turns(made(RECORDS, seen({}, None)), seen({}, None).turns)
    factor = PolicySettings().promise_factor
    assert turns["a"] == Turn(600.0, NOON + timedelta(seconds=factor * 600.0))
    assert turns["b"].promised_at == NOON + timedelta(seconds=factor * 1200.0)


def test_what_is_kept_comes_back_after_a_restart() -> None:
    rows = seen({}, None)
    first = made(RECORDS, rows)
    turns, clock = new_turns(first, rows.turns), VirtualClock(NOON, dict(first.virtual.attained))
    later = replace(seen(turns, clock), at=NOON + timedelta(minutes=5))
    again = made(RECORDS, later)
    assert new_turns(again, later.turns) == {}
    late = record("late", 0)
    more = made([*RECORDS, late], later)
    assert new_turns(more, later.turns).keys() == {"late"}
    # Three runs of two teams have shared one GPU for five minutes.
    assert more.virtual.attained == pytest.approx({"red": 75.0, "blue": 150.0})
    assert more.waiting["late"].tag == pytest.approx(675.0)


def said(seconds: float) -> Prediction:
    return Prediction(seconds, seconds / 2, 2 * seconds, basis="2 run(s) of the recipe, scaled")


def order(waiting: list[RunRecord], *ended: Lasted, turns: dict[str, Turn] | None = None) -> str:
    rows, entries = seen(turns or {}, None), Waiting()
    entries.go_by(PolicySettings(), Gates(), ())
    for each in waiting:
        entries.put(each, (1, 0), ())
    known = replace(KNOWN, claims=Claims(ended))
    first, again = (queue_of(entries, rows, known).in_order() for _ in range(2))
    assert first == again, "what a pass finds out changes nothing for the next one"
    return "".join(first)


def test_a_claim_that_never_came_true_passes_nobody() -> None:
    job = {"image": "i", "name": "n", "command": ["train"]}
    honest = record("h", 5, owner="ada", job=job, prediction=said(9.0))
    liar = record("l", 1, owner="eve", job=job, prediction=said(0.37))
    mine = kind_of({**job, "training": {"network": "n", "epochs": 30}}, "eve", "red")
    assert order([honest, liar]) == "lh", "of whom nothing is known yet is believed"
    # The same command took its time, whatever is claimed of it; so did others of hers.
    assert order([honest, liar], Lasted(mine, 9.5)) == "hl"
    others = [kind_of({**job, "command": ["x", str(i)]}, "eve", "red") for i in range(3)]
    assert order([honest, liar], *(Lasted(each, 9.5, said_s=0.4) for each in others)) == "hl"
    assert order([honest, liar], *(Lasted(each, 0.4, said_s=0.4) for each in others)) == "lh"
    theirs = [replace(each, owner="ada") for each in others]
    assert order([honest, liar], *(Lasted(each, 9.5, said_s=0.4) for each in theirs)) == "lh"


def test_a_place_that_was_bought_by_a_claim_is_lost_when_that_turns_out_wrong() -> None:
    job = {"image": "i", "name": "n", "command": ["train"]}
    honest = record("h", 5, owner="ada", job=job, prediction=said(9.0))
    liar = record("l", 1, owner="eve", job=job, prediction=said(0.37))
    turns = {"h": Turn(9.0, None), "l": Turn(0.37, None)}
    assert order([honest, liar], turns=turns) == "lh"
    assert order([honest, liar], Lasted(kind_of(job, "eve", "red"), 9.5), turns=turns) == "hl"


def test_who_runs_counts_before_those_who_wait() -> None:
    runs = record(
        "runs", 30, state=RunState.RUNNING, started_at=NOON - timedelta(seconds=200), tag=600.0
    )
    rows = seen({}, VirtualClock(NOON), runs)
    turns = new_turns(made(RECORDS[1:2], rows), rows.turns)
    factor = PolicySettings().promise_factor
    assert turns["a"].promised_at == NOON + timedelta(seconds=factor * 1000.0)


def test_nothing_is_promised_to_those_whom_their_quota_holds() -> None:
    runs = record("runs", 30, state=RunState.RUNNING, started_at=NOON, tag=600.0)
    rows = seen({}, VirtualClock(NOON), runs)
    quota = TeamSettings(max_running=1)
    turns = new_turns(made(RECORDS, rows, red=quota), rows.turns)
    assert turns["a"].promised_at is None
    assert turns["c"].promised_at is not None
