"""The site as Prometheus reads it: names and base units after Prometheus' conventions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.estimate.starts import score
from headway.ledger.records import RunRecord
from headway.model.gpu_health import Sickness
from headway.model.lease import Resource
from headway.model.node import GpuReading, NodeState
from headway.model.run import ExitKind, Prediction, RunState
from headway.policy.strangers import strangers
from headway.scheduler.snapshot import as_heard
from headway.views.site_snapshot import RunProgress, SiteSnapshot


@dataclass(frozen=True, slots=True)
class EstimateQuality:
    """How predicted runtimes compare with measured ones."""

    runs: int
    error_frac: float
    """Mean of |predicted - measured| / measured."""
    coverage_frac: float
    """Share of measured runtimes that lay within their 80 % interval."""


def estimate_quality(ended: Iterable[RunRecord]) -> EstimateQuality | None:
    """Judge the runtimes predicted for *ended* runs; None when none can be judged.

    Only runs that ended by themselves count, since a cancelled one says nothing about how long it
    would have taken, and of which something was learnt: a prior is no estimate.
    """
    errors, inside = [], []
    for record in ended:
        said, got = record.prediction, record.measurement
        if record.exit is None or record.exit.kind is not ExitKind.OK or not said or not got:
            continue
        if (median_s := said.learnt_runtime_s) is None or not got.runtime_s:
            continue
        errors.append(abs(median_s - got.runtime_s) / got.runtime_s)
        low, high = said.runtime_low_s or 0.0, said.runtime_high_s or float("inf")
        inside.append(low <= got.runtime_s <= high)
    if not errors:
        return None
    return EstimateQuality(len(errors), sum(errors) / len(errors), sum(inside) / len(inside))


def exposition(snapshot: SiteSnapshot) -> bytes:
    """*snapshot* in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(snapshot))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, snapshot: SiteSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Every metric of the snapshot."""
        yield from _nodes(self._snapshot)
        yield from _caches(self._snapshot)
        yield from _gpus(self._snapshot)
        yield from _line(self._snapshot)
        yield from _running(self._snapshot.running)
        yield _warnings(self._snapshot)
        yield from _estimates(self._snapshot)
        yield from _starts(self._snapshot)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headway_{name}", text, labels=labels)


def _nodes(seen: SiteSnapshot) -> Iterator[Metric]:
    state = _gauge("node_state", "1 for the state that the node is in.", "node", "pool", "state")
    age = _gauge("node_heartbeat_age_seconds", "Since the node's worker was heard of.", "node")
    readable = _gauge("node_gpus_readable", "0 while the GPUs cannot be read.", "node")
    cpus = _gauge("node_cpus", "Logical CPUs of the node.", "node")
    busy = _gauge("node_cpu_usage_ratio", "Share of all CPUs in use.", "node")
    memory = _gauge("node_memory_bytes", "Host memory of the node.", "node")
    used = _gauge("node_memory_used_bytes", "Host memory in use by anybody.", "node")
    promised = _gauge("node_memory_promised_bytes", "Host memory promised to leases.", "node")
    disk = _gauge("node_disk_free_bytes", "Free on the file system of headway's home.", "node")
    for record in seen.nodes:
        node, reading = as_heard(record, seen.at), record.reading
        for each in NodeState:
            state.add_metric([node.name, node.pool, each.value], float(node.state is each))
        age.add_metric([node.name], max((seen.at - record.heartbeat_at).total_seconds(), 0.0))
        cpus.add_metric([node.name], node.capacity.cpus)
        memory.add_metric([node.name], node.capacity.host_memory_bytes)
        held = (lease.host_memory_bytes for lease in seen.leases if lease.node == node.name)
        promised.add_metric([node.name], sum(held))
        if reading is not None:
            readable.add_metric([node.name], float(reading.gpus is not None))
            busy.add_metric([node.name], reading.host.cpu_frac)
            used.add_metric([node.name], reading.host.used_bytes)
            disk.add_metric([node.name], reading.host.disk_free_bytes)
    yield from (state, age, readable, cpus, busy, memory, used, promised, disk)


_CACHE_READINGS = (
    ("cache_bytes", "Data sets in the node's cache.", "size_bytes"),
    ("cache_hits", "Data sets that were in the cache when a run needed them.", "hits"),
    ("cache_hit_bytes", "What these have.", "hit_bytes"),
    ("cache_copies", "Data sets that had to be copied to the node.", "copies"),
    ("cache_copied_bytes", "What these have.", "copied_bytes"),
)


def _caches(seen: SiteSnapshot) -> Iterator[Metric]:
    for name, text, read in _CACHE_READINGS:
        family = _gauge(name, text, "node")
        for node, use in sorted(seen.caches.items()):
            family.add_metric([node], getattr(use, read))
        yield family


_GPU_READINGS = (
    ("gpu_memory_used_bytes", "GPU memory in use by any program.", "program_bytes"),
    ("gpu_utilisation_ratio", "Share of time in which a kernel ran.", "utilisation_frac"),
    ("gpu_temperature_celsius", "Temperature of the GPU.", "temperature_c"),
    ("gpu_power_watts", "Power drawn by the GPU.", "power_w"),
    ("gpu_pcie_receive_bytes_per_second", "PCIe traffic to the GPU.", "pcie_rx_bytes_per_s"),
    ("gpu_pcie_transmit_bytes_per_second", "PCIe traffic from the GPU.", "pcie_tx_bytes_per_s"),
    ("gpu_nvlink_receive_bytes_per_second", "NVLink traffic to it.", "nvlink_rx_bytes_per_s"),
    ("gpu_nvlink_transmit_bytes_per_second", "NVLink traffic from it.", "nvlink_tx_bytes_per_s"),
)


def _gpus(seen: SiteSnapshot) -> Iterator[Metric]:
    labels = ("node", "gpu", "index")
    memory = _gauge("gpu_memory_bytes", "Physical memory of the GPU.", *labels)
    promised = _gauge("gpu_memory_promised_bytes", "GPU memory promised to leases.", *labels)
    lost = _gauge("gpu_lost", "1 while the GPU is off the bus.", *labels)
    drained = _gauge("gpu_drained", "1 while it takes no runs, by what it has.", *labels, "kind")
    others = _gauge("gpu_strangers", "Programs on it that are no run's, unless tolerated.", *labels)
    read = {field: _gauge(name, text, *labels) for name, text, field in _GPU_READINGS}
    for record in seen.nodes:
        reading = record.reading
        now: dict[str, GpuReading] = {g.uuid: g for g in (reading.gpus or ())} if reading else {}
        for gpu in record.node.capacity.gpus:
            values = [record.node.name, gpu.uuid, str(gpu.index)]
            memory.add_metric(values, gpu.memory_bytes)
            grants = (grant for lease in seen.leases for grant in lease.gpus)
            promised.add_metric(values, sum(g.memory_bytes for g in grants if g.uuid == gpu.uuid))
            lost.add_metric(values, float(reading is not None and gpu.uuid in reading.lost_gpus))
            drain = record.node.gpu_drains.get(gpu.uuid)
            for kind in Sickness:
                drained.add_metric([*values, kind.value], float(bool(drain and kind in drain.why)))
            if gpu.uuid in now and not seen.tolerates_strangers:
                others.add_metric(values, len(strangers(now[gpu.uuid])))
            for field, family in read.items():
                value = getattr(now[gpu.uuid], field) if gpu.uuid in now else None
                if value is not None:  # an absent series says "not known", a zero would lie
                    family.add_metric(values, value)
    yield from (memory, promised, lost, drained, others, *read.values())


def _line(seen: SiteSnapshot) -> Iterator[Metric]:
    runs = _gauge("runs", "Runs in each state.", "state")
    for state in RunState:
        runs.add_metric([state.value], seen.counts.get(state, 0))
    waiting = _gauge("queue_runs", "Waiting runs by what they wait for.", "resource")
    for resource in (*Resource, None):
        name = resource.value if resource else "unknown"
        count = sum((record.resource or "unknown") == name for record in seen.waiting)
        waiting.add_metric([name], count)
    oldest = _gauge("queue_oldest_wait_seconds", "Longest wait of a run that waits now.")
    waits = [(seen.at - record.submitted_at).total_seconds() for record in seen.waiting]
    oldest.add_metric([], max(waits, default=0.0))
    yield from (runs, waiting, oldest)


_Read = Callable[[RunProgress, Prediction], float | None]
_RUN_READINGS: tuple[tuple[str, str, _Read], ...] = (
    ("elapsed_seconds", "Since the run's container started.", lambda run, _: run.elapsed_s),
    ("progress_ratio", "Share of its iterations done.", lambda run, _: run.done_frac),
    ("remaining_seconds", "Expected time to its end.", lambda run, _: run.remaining_s),
    ("predicted_runtime_seconds", "Runtime said before its start.", lambda _, p: p.runtime_s),
    ("predicted_runtime_low_seconds", "Low end of its interval.", lambda _, p: p.runtime_low_s),
    ("predicted_runtime_high_seconds", "High end of its interval.", lambda _, p: p.runtime_high_s),
)


def _running(running: Sequence[RunProgress]) -> Iterator[Metric]:
    for name, text, read in _RUN_READINGS:
        family = _gauge(f"run_{name}", text, "run_id", "run", "node")
        for run in running:
            value = read(run, run.record.prediction or Prediction())
            if value is not None:
                family.add_metric(
                    [run.record.run_id, run.record.name, run.record.node or ""], value
                )
        yield family


def _warnings(seen: SiteSnapshot) -> Metric:
    labels = ("run_id", "run", "node", "kind", "gpu")
    family = _gauge("run_warning", "1 while a run fails silently, by kind and GPU.", *labels)
    running = {standing.record.run_id: standing.record for standing in seen.running}
    for warning in seen.warnings:
        failure = warning.failure
        if (record := running.get(failure.run_id)) is not None:
            values = [record.run_id, record.name, record.node or "", failure.kind.value]
            family.add_metric([*values, failure.gpu], 1.0)
    return family


def _estimates(seen: SiteSnapshot) -> Iterator[Metric]:
    quality = estimate_quality(seen.ended)
    yield _single("traces", "Traces that estimators learn from.", seen.traces)
    judged = "Ended runs that the two below rest on."
    yield _single("estimate_judged_runs", judged, quality.runs if quality else 0)
    if quality is not None:
        error = "Mean relative error of runtimes."
        yield _single("estimate_runtime_error_ratio", error, quality.error_frac)
        coverage = "Share within the 80 % interval."
        yield _single("estimate_interval_coverage_ratio", coverage, quality.coverage_frac)


def _starts(seen: SiteSnapshot) -> Iterator[Metric]:
    at_first = score(said for said in seen.starts if said.at_submission)
    judged = "Started runs that the two below rest on, by what was said when they joined."
    yield _single("start_judged_runs", judged, at_first.starts if at_first else 0)
    if at_first is not None:
        coverage = "Share of the starts within the 80 % interval."
        yield _single("start_interval_coverage_ratio", coverage, at_first.coverage_frac)
    if at_first is not None and at_first.median_error_frac is not None:
        error = "Median error of starts by the wait, of runs that waited a minute or more."
        yield _single("start_error_ratio", error, at_first.median_error_frac)


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headway_{name}", text, value=value)
