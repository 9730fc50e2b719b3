"""What a tracker is told: what is known, and nothing in the place of what is not."""

from dataclasses import replace
from datetime import timedelta

from headway.model.lease import GpuGrant, Lease
from headway.model.node import Gpu
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState
from headway.views.tracked_run import tracked_run
from tests.unit.views.test_documents import NOON, RECORD

ENDED = replace(
    RECORD, state=RunState.ENDED, node="node-a", ended_at=NOON, exit=Exit(ExitKind.OK, 0, "well"),
    measurement=Measurement(runtime_s=50.0, gpu_peak_bytes=8, cost=0.5),
    prediction=Prediction(runtime_s=60.0, runtime_low_s=40.0, basis="forest"),
    job={"name": "flights", "training": {"network": "resnet"}},
)  # fmt: skip
GPUS = [Gpu(f"GPU-{at}", at, "H200", 1) for at in range(3)]


def test_what_is_known_of_an_end_is_told() -> None:
    lease = Lease(
        lease_id=1, run_id="id-1", attempt=2, node="node-a", host_memory_bytes=1, cpus=1.0,
        gpus=(GpuGrant("GPU-0", 1), GpuGrant("GPU-2", 1)), granted_at=NOON, expires_at=NOON,
        token="t", ports={},
    )  # fmt: skip
    earlier = replace(lease, attempt=1, gpus=(GpuGrant("GPU-1", 1),))
    told = tracked_run(ENDED, NOON + timedelta(1), [earlier, lease], GPUS)
    assert (told.experiment, told.status) == ("default/resnet", "FINISHED")
    assert told.tags == {
        "headway.run_id": "id-1", "headway.owner": "me", "headway.team": "default",
        "headway.attempt": "2", "headway.node": "node-a", "headway.gpus": "2 × H200",
        "headway.outcome": "ok", "headway.message": "well", "headway.predicted_by": "forest",
    }  # fmt: skip
    assert told.metrics == {
        "headway.runtime_s": 50.0, "headway.gpu_peak_bytes": 8.0, "headway.cost": 0.5,
        "headway.predicted_runtime_s": 60.0, "headway.predicted_runtime_low_s": 40.0,
    }  # fmt: skip


def test_what_never_started_has_no_numbers() -> None:
    refused = replace(
        ENDED, started_at=None, node=None, measurement=None, prediction=None,
        exit=Exit(ExitKind.REFUSED, None, "no such image"), job={"name": "flights"},
    )  # fmt: skip
    told = tracked_run(refused, NOON, [], [])
    assert (told.experiment, told.status, told.metrics) == ("default/flights", "FAILED", {})
    assert told.started_at == refused.submitted_at
    assert not {"headway.node", "headway.gpus", "headway.predicted_by"} & told.tags.keys()


def test_of_a_gang_the_gpus_of_one_node_are_not_told_as_its_own() -> None:
    lease = Lease(
        lease_id=1, run_id="id-1", attempt=2, node="node-a", host_memory_bytes=1, cpus=1.0,
        gpus=(GpuGrant("GPU-0", 1),), granted_at=NOON, expires_at=NOON, token="t", ports={},
    )  # fmt: skip
    gang = replace(ENDED, demand=None, job={"name": "flights", "resources": {"nodes": 2}})
    tags = tracked_run(gang, NOON, [lease], GPUS).tags
    assert tags["headway.nodes"] == "2"
    assert "headway.gpus" not in tags
