"""Runs that may do without the GPUs they wait for, and when they should."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TypeGuard

from headway.forecast import Forecaster
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.job_text import job_from_document
from headway.model.lease import Admit, Demand, Resource
from headway.model.run import Prediction
from headway.policy.admission import judge
from headway.policy.demand import sooner_on_cpu
from headway.policy.headroom import compute_headroom
from headway.policy.plan import Plan, Start, Stay
from headway.scheduler.snapshot import node_view
from headway.scheduler.waiting import Entry, Waiting
from headway.site import Site

_GPUS = frozenset({Resource.GPUS, Resource.GPU_MEMORY})


class Fallbacks:
    """What jobs that say `resources.cpu_fallback` would take and need on the CPU."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._on_cpu: dict[str, tuple[Prediction, Demand]] = {}

    def forget(self, run_id: str) -> None:
        """The run waits no more, or what it demands has changed."""
        self._on_cpu.pop(run_id, None)

    def due(
        self, site: Site, made: Plan, waiting: Waiting, seen: PoolSnapshot
    ) -> Iterator[RunRecord]:
        """Runs that would end sooner on the CPU, where there is room now; with what that needs.

        Args:
            site: Where.
            made: The plan, by which they wait.
            waiting: The runs that wait.
            seen: What the plan was made from.
        """
        for stay in made.entries:
            if not lacks_gpus(stay):
                continue
            entry = waiting.entries[stay.run_id]
            record, run = entry.record, entry.run
            may = (record.job.get("resources") or {}).get("cpu_fallback")
            if not (may and run.gpus and run.nodes == 1):
                continue
            said, demand = self._forecast(site, record)
            sooner = said_on_cpu(stay, record.prediction or Prediction(), said, seen.at)
            if sooner and any(_has_room(demand, entry, node, seen) for node in seen.nodes):
                yield replace(record, prediction=sooner, demand=demand)

    def _forecast(self, site: Site, record: RunRecord) -> tuple[Prediction, Demand]:
        if record.run_id not in self._on_cpu:
            self._on_cpu[record.run_id] = Forecaster(site).forecast(
                job_from_document(record.job).without_gpus(),
                override=record.demand_override,
                pool=record.pool,
                queue=record.queue,
            )
        return self._on_cpu[record.run_id]


def lacks_gpus(entry: Start | Stay | None) -> TypeGuard[Stay]:
    """Whether it waits for GPUs, or for memory of them."""
    return isinstance(entry, Stay) and entry.wait.resource in _GPUS


def said_on_cpu(
    stay: Stay, before: Prediction, said: Prediction, at: datetime
) -> Prediction | None:
    """*said* of a run on the CPU, with why it goes on there; None where it waits for its GPUs.

    Args:
        stay: How it waits for them.
        before: What is predicted with them.
        said: The same without.
        at: The time of the plan.
    """
    wait_s = None if stay.unknown else math.inf
    if stay.expected_at is not None:
        wait_s = (stay.expected_at - at).total_seconds()
    cpu_s, gpu_s = said.learnt_runtime_s, before.learnt_runtime_s
    if not sooner_on_cpu(cpu_s, gpu_s, wait_s):
        return None
    why = "where it is predicted to end sooner"
    if cpu_s is None and gpu_s is None:
        why = "since its GPUs are taken, and nothing is known of it by which waiting ends sooner"
    return replace(said, basis=f"{said.basis}; on the CPU, {why}")


def _has_room(demand: Demand, entry: Entry, node: NodeRecord, seen: PoolSnapshot) -> bool:
    if entry.run.node not in ("", node.node.name):
        return False
    view = node_view(node, seen)
    headroom = compute_headroom(view.node, view.leases, view.reading)
    return isinstance(judge(demand, headroom), Admit)
