"""A pool's rows in the ledger as the values that the policy plans with."""

from dataclasses import replace
from datetime import datetime, timedelta

from headway.gates import Gates
from headway.ledger.lines import Snapshot
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.attempt import Standing
from headway.model.node import NodeState
from headway.model.run import RunState
from headway.policy.plan import NodeView, RunningRun

LOST_AFTER_S = 60.0
"""A node whose worker was not heard of for so long takes no new runs."""
_FAR_S = 10 * 365 * 86_400.0
"""A remaining time is cut off here: a log may promise any number of iterations."""


def is_lost(record: NodeRecord, now: datetime) -> bool:
    """Whether the node's worker was not heard of for too long."""
    return (now - record.heartbeat_at).total_seconds() > LOST_AFTER_S


def node_view(record: NodeRecord, seen: Snapshot) -> NodeView:
    """A node with its leases; one that is silent is lost, whatever its row says."""
    node = record.node
    if node.state is NodeState.READY and is_lost(record, seen.at):
        silent = f"not heard of since {record.heartbeat_at:%H:%M:%S} UTC"
        node = replace(node, state=NodeState.LOST, state_reason=silent)
    leases = tuple(lease for lease in seen.leases if lease.node == node.name)
    return NodeView(node, leases, record.reading)


def running_run(
    record: RunRecord, seen: Snapshot, gates: Gates, said: Standing | None
) -> RunningRun:
    """A run that holds leases, with its end as its log tells it, else as it was predicted.

    Args:
        record: The run.
        seen: The pool.
        gates: For its priority.
        said: What was last kept of how far it is.
    """
    median_end_at = None
    if said is not None and said.attempt == record.attempt and said.remaining_s is not None:
        # What its log tells now; the prediction was made before it began.
        median_end_at = said.at + timedelta(seconds=min(said.remaining_s, _FAR_S))
    elif record.prediction is not None and record.prediction.runtime_s is not None:
        begun = record.started_at or record.claimed_at or seen.at
        median_end_at = begun + timedelta(seconds=record.prediction.runtime_s)
    return RunningRun(
        run_id=record.run_id,
        team=record.team,
        priority=gates.priorities.get(record.queue, record.priority),
        median_end_at=median_end_at,
        preemptible=bool(record.job.get("preemptible")) and record.state is RunState.RUNNING,
        stopping=record.preempted_for is not None,
        gang_id=record.gang_id or "",
    )
