"""What the parts of GPUs did, and what is said of it."""

from datetime import UTC, datetime

import pytest

from headway.model.profile import Activity, Profile, ProfileSource
from headway.model.telemetry import TelemetryPoint
from headway.profile.activity import activity_text, clocks_text, with_activity
from headway.profile.text import profile_view, summary

AT = datetime(2026, 1, 1, tzinfo=UTC)
NSYS = Profile(ProfileSource.NSYS, 60.0)


def point(**values: float | None) -> TelemetryPoint:
    return TelemetryPoint(AT, "GPU-a", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("busy", "sm", "tensor", "memory", "means"),
    [
        (0.78, 0.70, 0.04, 0.20, "waits for memory or input within its kernels, or computes"),
        (0.78, 0.70, 0.30, 0.20, "computes"),
        (0.95, 0.90, 0.04, 0.80, "waits for the GPU's memory"),
        (0.95, 0.10, 0.01, 0.05, "its kernels fill less than half of the GPU"),
        (0.20, 0.18, 0.10, 0.10, "waits more than half of the time, for its input or the host"),
        # It is judged while kernels run: what is left of them fills the GPU and is tensors.
        (0.60, 0.50, 0.20, 0.10, "computes"),
    ],
)
def test_the_figures_come_with_their_meaning(
    busy: float, sm: float, tensor: float, memory: float, means: str
) -> None:
    seen = point(busy_frac=busy, sm_frac=sm, tensor_frac=tensor, bandwidth_frac=memory)
    told = activity_text(with_activity(NSYS, {"GPU-a": [seen]}))
    figures, meaning = told.split(": ", 1)
    assert figures == (
        f"its GPUs were {busy * 100:.0f} % utilised, SMs {sm * 100:.0f} %, "
        f"tensor cores {tensor * 100:.0f} %, memory {memory * 100:.0f} %"
    )
    assert meaning.startswith(means)


def test_minutes_count_sixty_times_and_what_is_missing_not_at_all() -> None:
    series = {
        "GPU-a": [TelemetryPoint(AT, "GPU-a", period_s=60, busy_frac=0.2, sm_frac=0.1), point()],
        "GPU-b": [point(busy_frac=0.81, sm_frac=0.71)],
    }
    profile = with_activity(NSYS, series)
    assert profile.busy_frac == pytest.approx((60 * 0.2 + 0.81) / 61)
    assert profile.activity == Activity(sm_frac=pytest.approx((60 * 0.1 + 0.71) / 61))
    # Without all three figures nothing is said to follow from them.
    assert activity_text(profile) == "its GPUs were 21 % utilised, SMs 11 %"


def test_gpus_that_do_not_tell_are_said_not_to() -> None:
    profile = with_activity(NSYS, {"GPU-a": [point(busy_frac=0.5)]})
    assert (activity_text(profile), profile.busy_frac) == ("", 0.5)
    assert "is not told: GPUs of Hopper" in profile.notes[-1]
    assert profile_view(profile)["activity"]["sm_frac"] is None
    assert with_activity(NSYS, {"GPU-a": []}).notes == ()  # nobody has looked


def test_clocks_and_what_held_them_down() -> None:
    assert clocks_text(Activity()) == ""
    free = Activity(clock_frac=1.0, power_limited_frac=0.0, heat_limited_frac=0.0)
    assert clocks_text(free) == "clocks at 100 % of the highest"
    held = Activity(clock_frac=0.71, power_limited_frac=0.4, heat_limited_frac=0.05)
    assert clocks_text(held) == (
        "clocks at 71 % of the highest, held down for power 40 % of the time and for heat 5 % of "
        "the time"
    )
    seen = point(busy_frac=0.5, clock_frac=0.71)
    told = summary(with_activity(NSYS, {"GPU-a": [seen]}))
    assert told == "nsys over 1 min, kernels ran 50 % of the time; clocks at 71 % of the highest"
