"""Pools of engines in the ledger, and the steps of runs there: no lease, and one follower."""

from dataclasses import replace

import pytest

from headway.errors import InvalidInput, LeaseLost
from headway.ledger import Ledger
from headway.ledger.errors import TermOver
from headway.model.engine import EngineNode, EnginePool, GpuKind
from headway.model.lease import Fence
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.model.term import Term
from headway.units import GIB
from tests.support.on_ledger import enqueue, join

HAS = EnginePool("all", (EngineNode("n1", 2, GIB, (GpuKind("a100", 2),)),), max_time_s=60.0)


def lead(ledger: Ledger, holder: str = "f") -> Term:
    leader = ledger.leaders.contend("gpu", "node-a", holder, ttl_s=10.0)
    return leader.term


def begin(ledger: Ledger, fence: Fence, term: Term) -> None:
    ledger.engines.begin(fence, term, engine="slurm", engine_id="7", node="node-a")


def test_what_a_pool_has_is_kept_and_learnt_anew(ledger: Ledger) -> None:
    join(ledger, "node-a")
    ledger.engines.keep("slurm", "node-a", [("cluster", HAS)])
    ledger.engines.keep("slurm", "node-a", [("cluster", HAS), ("more", HAS)])
    found = ledger.engines.pools()
    assert set(found) == {"cluster", "more"}
    assert (found["cluster"].has, found["cluster"].node) == (HAS, "node-a")


def test_no_pool_is_an_engines_and_a_nodes(ledger: Ledger) -> None:
    join(ledger, "node-a")
    ledger.engines.keep("slurm", "node-a", [("cluster", HAS)])
    known = ledger.nodes.get("node-a")
    assert known is not None
    late = replace(known.node, name="late", pool="cluster")
    with pytest.raises(InvalidInput, match="handed to slurm"):
        ledger.nodes.register(late, boot_id="b", worker_token="t")
    with pytest.raises(InvalidInput, match="handed to slurm"):
        ledger.nodes.check_name("late", pool="cluster", identity="", boot_id="b")
    with pytest.raises(InvalidInput, match="node-a has joined"):
        ledger.engines.keep("slurm", "node-a", [("more", HAS), (known.node.pool, HAS)])
    assert set(ledger.engines.pools()) == {"cluster"}


def test_a_run_begins_without_a_lease_waits_again_and_ends(ledger: Ledger) -> None:
    join(ledger, "node-a")
    enqueue(ledger, "r")
    fence, term = Fence("r", 1), lead(ledger)
    begin(ledger, fence, term)
    began = ledger.runs.get("r")
    assert (began.state, began.runtime, began.container) == (RunState.RUNNING, "slurm", "7")
    assert [run.run_id for run in ledger.runs.under_way(["gpu"])] == ["r"]
    assert ledger.runs.on_node("node-a") == []  # no janitor of a node takes it for its own
    ledger.engines.waits_again(fence, term, "queued again")
    again = ledger.runs.get("r")
    assert (again.state, again.attempt, again.reason) == (RunState.WAITING, 1, "queued again")
    begin(ledger, fence, term)
    ledger.runs.finish(fence, Exit(ExitKind.OK, 0, ""), Measurement())
    with pytest.raises(LeaseLost):
        begin(ledger, fence, term)


def test_a_follower_that_leads_no_more_changes_nothing(ledger: Ledger) -> None:
    join(ledger, "node-a")
    enqueue(ledger, "r")
    old, new = lead(ledger, "old"), lead(ledger, "new")
    assert old != new
    with pytest.raises(TermOver):
        begin(ledger, Fence("r", 1), old)
    assert ledger.runs.get("r").state is RunState.WAITING
