"""Runs of the line that may do without the GPUs they wait for, and when they should."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from headway.ledger.lines import Snapshot
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.job_text import job_from_document, job_nodes
from headway.model.lease import Admit, Demand, Resource
from headway.model.run import Prediction
from headway.policy.admission import judge
from headway.policy.demand import sooner_on_cpu
from headway.policy.headroom import compute_headroom
from headway.policy.plan import Plan, Stay, WaitingRun
from headway.scheduler.snapshot import node_view
from headway.site import Site

_GPUS = frozenset({Resource.GPUS, Resource.GPU_MEMORY})


class Fallbacks:
    """What the line knows of jobs that say `resources.cpu_fallback`."""

    def __init__(self, site: Site) -> None:
        """Of *site*'s line."""
        self._site = site
        self._runs: dict[str, RunRecord] = {}
        self._on_cpu: dict[str, tuple[Prediction, Demand]] = {}

    def note(self, record: RunRecord, demand: Demand) -> None:
        """A run has come into the line, or what it demands has changed."""
        self.forget(record.run_id)
        resources = record.job.get("resources") or {}
        if demand.gpus and resources.get("cpu_fallback") and job_nodes(record.job) == 1:
            self._runs[record.run_id] = record

    def forget(self, run_id: str) -> None:
        """The run is in the line no more."""
        self._runs.pop(run_id, None)
        self._on_cpu.pop(run_id, None)

    def due(
        self, made: Plan, waiting: Mapping[str, WaitingRun], seen: Snapshot
    ) -> Iterator[tuple[RunRecord, Prediction, Demand]]:
        """Runs that would end sooner on the CPU, where there is room now; with what that needs.

        Args:
            made: The plan, by which they wait.
            waiting: The line by run.
            seen: What the plan was made from.
        """
        for entry in made.entries:
            record = self._runs.get(entry.run_id)
            if record is None or not isinstance(entry, Stay) or entry.wait.resource not in _GPUS:
                continue
            if entry.unknown:
                continue  # how long the wait is nobody knows: then it waits
            said, demand = self._forecast(record)
            at = entry.expected_at
            wait_s = math.inf if at is None else (at - seen.at).total_seconds()
            before = record.prediction.learnt_runtime_s if record.prediction else None
            if not sooner_on_cpu(said.learnt_runtime_s, before, wait_s):
                continue
            run = waiting[entry.run_id]
            if any(_has_room(demand, run, node, seen) for node in seen.nodes):
                basis = f"{said.basis}; on the CPU, where it is predicted to end sooner"
                yield record, replace(said, basis=basis), demand

    def _forecast(self, record: RunRecord) -> tuple[Prediction, Demand]:
        if record.run_id not in self._on_cpu:
            self._on_cpu[record.run_id] = self._site.forecast(
                job_from_document(record.job).without_gpus(),
                dataset_bytes=None,
                override=record.demand_override,
                pool=record.pool,
                queue=record.queue,
            )
        return self._on_cpu[record.run_id]


def _has_room(demand: Demand, run: WaitingRun, node: NodeRecord, seen: Snapshot) -> bool:
    view = node_view(node, seen)
    headroom = compute_headroom(view.node, view.leases, view.reading)
    return run.node in ("", node.node.name) and isinstance(judge(demand, headroom), Admit)
