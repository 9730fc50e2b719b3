"""What Prometheus reads is right, named as it should be, and silent where nothing is known."""

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.estimate.physics import shipped
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import GpuGrant, Lease
from headway.model.node import Capacity, Gpu, GpuProcess, GpuReading, HostReading, Node, NodeReading
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.model.staged import CacheUse
from headway.units import GIB
from headway.views.metrics import estimate_quality, exposition
from headway.views.node_document import node_shown
from headway.views.site_snapshot import RunProgress, SiteSnapshot
from headway.views.tables import state_text
from tests.unit.views.test_documents import NOON, RECORD

NODE = Node("node-a", "gpu", Capacity(8.0, 64 * GIB, (Gpu("GPU-0", 0, "V100", 16 * GIB),)))
HOST = HostReading(64 * GIB, 4 * GIB, 0.25, 100 * GIB)
GPU = GpuReading("GPU-0", 0, "V100", 16 * GIB, 2 * GIB, utilisation_frac=0.5)
LEASE = Lease(
    1, "r1", 1, "node-a", "t", 8 * GIB, 2.0, (GpuGrant("GPU-0", 3 * GIB),), {}, NOON, NOON
)  # fmt: skip


def run(state: RunState = RunState.WAITING, **changes: object) -> RunRecord:
    base = replace(
        RECORD, run_id="r1", name='my "run"', state=state, resource=None, started_at=None,
        submitted_at=NOON - timedelta(hours=2), prediction=None,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def snapshot(reading: NodeReading | None, **changes: object) -> SiteSnapshot:
    record = NodeRecord(NODE, "boot", "token", NOON - timedelta(seconds=7), reading)
    base = SiteSnapshot(NOON, [record], [LEASE], {RunState.WAITING: 1}, [run()], [], [], [], 5)
    return replace(base, **changes)  # type: ignore[arg-type]


def samples(seen: SiteSnapshot) -> dict[tuple[str, str], float]:
    """Value by name and the labels' values, by label name."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(exposition(seen).decode())
        for sample in family.samples
    }


def test_a_node_that_is_silent_is_called_lost_wherever_nodes_are_listed() -> None:
    """Its row says ready: that is what its worker said when it was there."""
    seen = snapshot(None)
    later = NOON + timedelta(minutes=2)
    got = samples(replace(seen, at=later))
    assert got["headway_node_state", "node-a,gpu,ready"] == 0
    assert got["headway_node_state", "node-a,gpu,lost"] == 1
    (record,) = seen.nodes
    for now, text in (
        (NOON, "ready"),
        (later, "lost (not heard of since 11:59:53 UTC)"),
    ):
        assert state_text(node_shown(record, now, [LEASE], {}, shipped())) == text


def test_node_gpu_and_line_are_there() -> None:
    got = samples(snapshot(NodeReading(NOON, HOST, (GPU,))))
    assert got["headway_node_heartbeat_age_seconds", "node-a"] == 7
    assert got["headway_node_state", "node-a,gpu,ready"] == 1
    assert got["headway_node_state", "node-a,gpu,lost"] == 0
    assert got["headway_node_memory_promised_bytes", "node-a"] == 8 * GIB
    assert got["headway_gpu_memory_promised_bytes", "GPU-0,0,node-a"] == 3 * GIB
    assert got["headway_gpu_utilisation_ratio", "GPU-0,0,node-a"] == 0.5
    assert got["headway_queue_oldest_wait_seconds", ""] == 7200
    assert got["headway_queue_runs", "unknown"] == 1


def test_what_the_caches_spared_is_counted() -> None:
    amounts = {"hits": 5, "hit_bytes": 50, "copies": 1, "copied_bytes": 10}
    use = CacheUse(sets=2, size_bytes=30, **amounts)
    got = samples(replace(snapshot(None), caches={"node-a": use}))
    counted = {
        name[len("headway_cache_") :]: value
        for (name, _), value in got.items()
        if "_cache_" in name
    }
    assert counted == {"bytes": 30, **amounts}


def test_programs_that_are_no_runs_are_counted_unless_they_are_tolerated() -> None:
    held = replace(GPU, processes=(GpuProcess(1, None), GpuProcess(2, None, "run")))
    seen, key = (
        snapshot(NodeReading(NOON, HOST, (held,))),
        ("headway_gpu_strangers", "GPU-0,0,node-a"),
    )
    assert samples(seen)[key] == 1
    assert key not in samples(replace(seen, tolerates_strangers=True))


def test_what_is_not_known_is_absent_not_zero() -> None:
    lost = NodeReading(NOON, HOST, (), lost_gpus={"GPU-0": "NVML error 15"})
    got = samples(snapshot(lost))
    assert got["headway_gpu_lost", "GPU-0,0,node-a"] == 1
    assert got["headway_node_gpus_readable", "node-a"] == 1
    unreadable = samples(snapshot(NodeReading(NOON, HOST, None, "NVML hangs")))
    assert unreadable["headway_gpu_lost", "GPU-0,0,node-a"] == 0
    assert unreadable["headway_node_gpus_readable", "node-a"] == 0
    assert ("headway_gpu_memory_used_bytes", "GPU-0,0,node-a") not in got
    never = samples(snapshot(None))
    assert ("headway_node_disk_free_bytes", "node-a") not in never


def test_a_name_with_quotes_and_newlines_is_escaped() -> None:
    standing = RunProgress(
        run(RunState.RUNNING, name='a"\n\\b', node="node-a"),
        10.0,
        far=ProgressSnapshot("r1", 1, NOON, 10.0, done_frac=0.5),
    )
    got = samples(snapshot(None, running=[standing]))
    assert got["headway_run_progress_ratio", 'node-a,a"\n\\b,r1'] == 0.5
    assert not [key for key in got if key[0] == "headway_run_remaining_seconds"]


def test_a_running_run_keeps_what_was_said_before_its_start() -> None:
    said = Prediction(runtime_s=90.0, runtime_low_s=70.0, runtime_high_s=None)
    record = run(RunState.RUNNING, name="a", node="node-a", prediction=said)
    got = samples(snapshot(None, running=[RunProgress(record, 10.0)]))
    assert got["headway_run_predicted_runtime_seconds", "node-a,a,r1"] == 90
    assert got["headway_run_predicted_runtime_low_seconds", "node-a,a,r1"] == 70
    assert not [key for key in got if key[0] == "headway_run_predicted_runtime_high_seconds"]


def test_a_silent_failure_is_a_series_of_its_run() -> None:
    failure = SilentFailure(Silent.GPU_UNUSED, "r1", "GPU-0", 0.0, 0.02, "idles")
    standing = RunProgress(run(RunState.RUNNING, name="a", node="node-a"), 10.0)
    seen = snapshot(None, running=[standing], warnings=[RunWarning(1, failure, NOON)])
    assert samples(seen)["headway_run_warning", "GPU-0,gpu_unused,node-a,a,r1"] == 1


def test_quality_counts_runs_that_ended_by_themselves_and_were_no_guess() -> None:
    ok, stopped = Exit(ExitKind.OK, 0, ""), Exit(ExitKind.CANCELLED, None, "")
    said = Prediction(110.0, runtime_low_s=105.0, runtime_high_s=120.0, basis="3 runs")
    runs = [
        run(prediction=said, measurement=Measurement(runtime_s=100.0), exit=ok),
        run(prediction=said, measurement=Measurement(runtime_s=110.0), exit=ok),
        run(prediction=said, measurement=Measurement(runtime_s=1.0), exit=stopped),
        run(prediction=Prediction(), measurement=Measurement(runtime_s=5.0), exit=ok),
        run(
            prediction=replace(said, basis="prior: nothing like it has run"),
            measurement=Measurement(runtime_s=1.0),
            exit=ok,
        ),
    ]
    quality = estimate_quality(runs)
    assert quality is not None
    assert quality.runs == 2
    assert quality.error_frac == pytest.approx(0.05)
    assert quality.coverage_frac == 0.5
    assert estimate_quality([]) is None
