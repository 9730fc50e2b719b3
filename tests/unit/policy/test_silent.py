"""Silent failures are said with what was measured, and only when it is sure."""

from datetime import UTC, datetime, timedelta

from headway.model.lease import GpuGrant, Lease
from headway.model.telemetry import TelemetryPoint
from headway.policy.silent import Silent, silent_failures
from headway.units import GIB

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = Lease(
    1, "r1", 1, "node-a", "t", 8 * GIB, 4.0, (GpuGrant("GPU-0", 3 * GIB),), (), NOON, NOON
)  # fmt: skip


def points(
    count: int, busy: float | None, held: dict[str, int] | None = None
) -> dict[str, list[TelemetryPoint]]:
    held = {"r1": GIB} if held is None else held
    made = [
        TelemetryPoint(NOON + timedelta(seconds=n), "GPU-0", busy_frac=busy, run_bytes=held)
        for n in range(count)
    ]
    return {"GPU-0": made}


def kinds(seen: dict[str, list[TelemetryPoint]], cpu_used: float | None = None) -> list[Silent]:
    return [found.kind for found in silent_failures(LEASE, seen, cpu_used=cpu_used)]


def test_a_gpu_that_is_held_and_idle_is_named_with_its_utilisation() -> None:
    (found,) = silent_failures(LEASE, points(300, 0.01, {}), cpu_used=4.0)
    assert (found.kind, found.gpu) == (Silent.GPU_UNUSED, "GPU-0")
    assert abs(found.measured - 0.01) < 1e-9
    assert "1.0%" in found.text


def test_nothing_is_said_too_early_or_without_knowing() -> None:
    assert kinds(points(299, 0.0)) == []
    assert kinds(points(600, None)) == []
    assert kinds({}) == []


def test_a_shared_gpu_is_not_judged_by_utilisation() -> None:
    assert kinds(points(600, 0.0, {"r1": GIB, "r2": GIB})) == []


def test_memory_over_the_grant_is_said_at_once_and_on_shared_gpus() -> None:
    (found,) = silent_failures(LEASE, points(1, 0.9, {"r1": 3 * GIB + 1, "r2": GIB}), cpu_used=None)
    assert (found.kind, found.measured, found.limit) == (
        Silent.OVER_GRANT, 3 * GIB + 1, 3 * GIB,
    )  # fmt: skip
    assert kinds(points(1, 0.9, {"r1": 3 * GIB})) == []


def test_starved_means_that_the_gpu_waits_while_the_processors_work() -> None:
    assert kinds(points(300, 0.2), cpu_used=3.2) == [Silent.STARVED]
    assert kinds(points(300, 0.2), cpu_used=3.1) == []
    assert kinds(points(300, 0.5), cpu_used=4.0) == []
    assert kinds(points(300, 0.2), cpu_used=None) == []
