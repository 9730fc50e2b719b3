"""When a session ends because nobody uses it."""

from datetime import UTC, datetime

from headway.model.telemetry import TelemetryPoint
from headway.policy.idle import EndIdle, gpu_was_used, judge_idle

AT = datetime(2026, 1, 1, tzinfo=UTC)


def points(busy: float | None, held: int) -> dict[str, list[TelemetryPoint]]:
    return {"gpu-0": [TelemetryPoint(AT, "gpu-0", busy_frac=busy, run_bytes={"mine": held})]}


def test_it_goes_on_until_its_time_is_over() -> None:
    assert judge_idle(1799.9, 1800.0, gpu_used=False) is None
    end = judge_idle(1800.0, 1800.0, gpu_used=False)
    assert isinstance(end, EndIdle)
    assert "for 30 min" in end.why


def test_a_gpu_in_use_keeps_it() -> None:
    assert judge_idle(7200.0, 1800.0, gpu_used=True) is None


def test_a_gpu_is_used_where_the_run_has_memory_and_it_computes() -> None:
    assert gpu_was_used(points(0.5, 1), "mine")
    assert gpu_was_used(points(None, 1), "mine")
    assert not gpu_was_used(points(0.0, 1), "mine")
    assert not gpu_was_used(points(0.5, 0), "mine")
    assert not gpu_was_used(points(0.5, 1), "another")
    assert not gpu_was_used({}, "mine")
