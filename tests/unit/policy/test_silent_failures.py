"""Silent failures are said with what was measured, and only when it is sure."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.model.lease import GpuGrant, Lease, Sharing
from headway.model.run import Exit, ExitKind
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.model.telemetry import TelemetryPoint
from headway.policy.settings import OnSilentFailure, PolicySettings
from headway.policy.silent_failures import exit_told, silent_failures, to_end_for
from headway.units import GIB

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = Lease(
    1, "r1", 1, "node-a", "t", 8 * GIB, 4.0, (GpuGrant("GPU-0", 3 * GIB),), {}, NOON, NOON
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


def look(
    seen: dict[str, list[TelemetryPoint]], cpu_used: float | None = None, lease: Lease = LEASE
) -> list[SilentFailure]:
    elapsed_s = float(max(map(len, seen.values()), default=0))
    return silent_failures(lease, seen, cpu_used=cpu_used, elapsed_s=elapsed_s, after_s=300.0)


def kinds(seen: dict[str, list[TelemetryPoint]], cpu_used: float | None = None) -> list[Silent]:
    return [found.kind for found in look(seen, cpu_used)]


def test_a_gpu_that_is_held_and_idle_is_named_with_its_utilisation() -> None:
    (found,) = look(points(300, 0.01, {}), 4.0)
    assert (found.kind, found.gpu) == (Silent.GPU_UNUSED, "GPU-0")
    assert abs(found.measured - 0.01) < 1e-9
    assert "1.0%" in found.text


def bursts(busy_s: int, of_s: int) -> dict[str, list[TelemetryPoint]]:
    """At full load for *busy_s* of *of_s* seconds, again and again for ten minutes."""
    (seen,) = points(600, 0.0).values()
    at = [replace(each, busy_frac=float(n % of_s < busy_s)) for n, each in enumerate(seen)]
    return {"GPU-0": at}


def test_a_short_burst_now_and_then_does_not_hide_that_a_gpu_is_idle() -> None:
    (found,) = look(bursts(6, 60), 1.0)
    assert (found.kind, found.limit) == (Silent.GPU_UNUSED, pytest.approx(0.1))
    assert "was idle in 90% of the last 10 min" in found.text
    assert kinds(bursts(9, 60)) == []
    assert kinds(bursts(6, 60), cpu_used=4.0) == [Silent.STARVED]  # it waits for its data


def start_then(idle_s: int, seen: dict[str, list[TelemetryPoint]]) -> dict[str, Any]:
    """The last ten minutes of a run that was idle for *idle_s* before *seen*."""
    return {"GPU-0": [*points(idle_s, 0.0)["GPU-0"], *seen["GPU-0"]][-600:]}


def test_a_run_that_is_slow_to_start_is_not_called_unused() -> None:
    slow = start_then(280, points(20, 1.0))["GPU-0"]
    assert kinds({"GPU-0": slow}) == []
    assert kinds({"GPU-0": [*points(4, 1.0)["GPU-0"], *slow]}) == []  # which tried its GPU first
    worked = {"GPU-0": bursts(9, 60)["GPU-0"][:310]}
    assert kinds(start_then(290, worked)) == []  # idle in nine of ten seconds, with its start
    assert kinds(start_then(290, bursts(9, 60))) == []
    assert kinds(start_then(290, bursts(6, 60))) == [Silent.GPU_UNUSED]
    seldom = start_then(580, points(20, 1.0))  # that was no start
    assert kinds(seldom) == [Silent.GPU_UNUSED]


def test_nothing_is_said_too_early_or_without_knowing() -> None:
    assert kinds(points(299, 0.0)) == []
    assert kinds(points(600, None)) == []
    assert kinds({}) == []


def test_a_shared_gpu_is_not_judged_by_utilisation() -> None:
    assert kinds(points(600, 0.0, {"r1": GIB, "r2": GIB})) == []


def test_memory_over_the_grant_is_said_at_once_and_on_shared_gpus() -> None:
    (found,) = look(points(1, 0.9, {"r1": 3 * GIB + 1, "r2": GIB}))
    assert (found.kind, found.measured, found.limit) == (
        Silent.OVER_GRANT, 3 * GIB + 1, 3 * GIB,
    )  # fmt: skip
    assert kinds(points(1, 0.9, {"r1": 3 * GIB})) == []


def test_starved_means_that_the_gpu_waits_while_the_processors_work() -> None:
    assert kinds(points(300, 0.2), cpu_used=3.2) == [Silent.STARVED]
    assert kinds(points(300, 0.2), cpu_used=3.1) == []
    assert kinds(points(300, 0.5), cpu_used=4.0) == []
    assert kinds(points(300, 0.2), cpu_used=None) == []


def test_on_a_shared_gpu_a_run_that_never_had_memory_there_does_not_use_it() -> None:
    (found,) = look(points(300, 0.9, {"r2": GIB}))
    assert (found.kind, "had no memory there over 5 min" in found.text) == (
        Silent.GPU_UNUSED, True,
    )  # fmt: skip
    assert kinds(points(299, 0.9, {"r2": GIB})) == []


def test_the_reserve_of_a_gpu_of_its_own_is_nobody_elses() -> None:
    alone = replace(LEASE, gpus=(GpuGrant("GPU-0", 3 * GIB, Sharing.WHOLE),))
    assert look(points(1, 0.9, {"r1": 4 * GIB}), lease=alone) == []


def warning(kind: Silent, began_s: float = 0.0, *, stopped: bool = False) -> RunWarning:
    failure = SilentFailure(kind, "r1", "GPU-0", 0.0, 0.02, "holds GPU-0, 0.0% busy")
    began = NOON + timedelta(seconds=began_s)
    return RunWarning(1, failure, began, stopped_at=NOON if stopped else None)


STOP = PolicySettings(on_silent_failure=OnSilentFailure.STOP, silent_grace_s=60.0)


def test_a_run_is_ended_only_where_the_operator_says_so_and_after_the_grace() -> None:
    unused, starved = warning(Silent.GPU_UNUSED, 10.0), warning(Silent.STARVED)
    late, soon = NOON + timedelta(seconds=70), NOON + timedelta(seconds=69)
    assert to_end_for([starved, unused], now=late, settings=STOP, is_guess=True) is unused
    assert to_end_for([starved, unused], now=soon, settings=STOP, is_guess=False) is None
    warn = PolicySettings()
    assert to_end_for([unused], now=late, settings=warn, is_guess=False) is None


@pytest.mark.parametrize("is_guess", [True, False])
def test_no_run_is_ended_for_more_than_headway_itself_has_guessed(is_guess: bool) -> None:
    over, late = warning(Silent.OVER_GRANT), NOON + timedelta(seconds=70)
    ended = to_end_for([over], now=late, settings=STOP, is_guess=is_guess)
    assert ended is (None if is_guess else over)


@pytest.mark.parametrize(
    "knob",
    [
        {"silent_after_s": 9.9},
        {"silent_after_s": 1801.0},
        {"silent_grace_s": -1.0},
        {"silent_after_s": float("nan")},
    ],
)
def test_knobs_out_of_range_are_refused(knob: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(knob))):
        PolicySettings(**knob)


def test_what_the_policy_ended_has_failed_with_what_was_measured() -> None:
    obeyed = Exit(ExitKind.OK, 0, "done")
    told = exit_told(obeyed, [warning(Silent.GPU_UNUSED, stopped=True)])
    assert (told.kind, told.code) == (ExitKind.FAILED, 0)
    assert "it holds GPU-0, 0.0% busy" in told.message
    assert exit_told(obeyed, [warning(Silent.GPU_UNUSED)]) is obeyed
