"""What a run shows of itself while it runs."""

import logging
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from prefect.client.schemas.actions import ArtifactUpdate

from flows import display as module
from flows import page
from flows.display import Display, _line, warnings_text
from headway.estimate.remaining.remaining_time import RemainingEstimate
from headway.model.progress import ProgressPoint
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.run.follow import Watched
from tests.ports.clock import FakeClock

HALF = Watched(
    30.0,
    ProgressPoint(29.0, iteration=50, total=100, metrics={"loss": 0.25}),
    RemainingEstimate(30.0, 28.0, 33.0),
)


def test_the_line_says_where_the_run_is_and_what_is_left() -> None:
    assert _line(HALF) == ("running for 30 s, at iteration 50 of 100, loss 0.25, **30 s left**")
    unknown = Watched(3.0, None, RemainingEstimate(None, None, None))
    assert _line(unknown) == "running for 3.0 s, remaining time not known yet"


def test_a_run_that_has_ended_has_no_time_left() -> None:
    assert (
        _line(HALF, over=True)
        == "ran for 30 s, at iteration 50 of 100, loss 0.25, **it has ended**"
    )


def test_where_no_total_is_known_the_line_says_so() -> None:
    point = ProgressPoint(29.0, iteration=1000)
    alone = Watched(30.0, point, RemainingEstimate(None, None, None), per_s=34.5)
    assert _line(alone) == (
        "running for 30 s, at iteration 1,000, 34/s; how many there will be is not known, "
        "remaining time not known yet"
    )
    assert _line(alone, over=True) == "ran for 30 s, at iteration 1,000, **it has ended**"
    by_others = Watched(30.0, point, RemainingEstimate(60.0, 20.0, 200.0))
    assert _line(by_others).endswith("**20 s to 3 min 20 s left**, as long as earlier runs lasted")


def test_a_metric_with_a_hostile_name_stays_in_its_line() -> None:
    point = ProgressPoint(1.0, 1, total=2, metrics={"<b>\u202e\n": 1.0})
    assert "\n" not in _line(Watched(1.0, point, RemainingEstimate(None, None, None)))


def test_a_line_that_steers_a_terminal_does_not_reach_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    display = Display(logging.getLogger("display-test"), FakeClock())
    with caplog.at_level(logging.INFO, logger="display-test"):
        display.lines("\x1b[31mred\x1b[0m \x1b]0;title\x07and\u202e\u200b more\n".encode(), 0)
    assert [record.getMessage() for record in caplog.records] == ["red and more"]


def test_a_flood_of_lines_is_thinned_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    logger = logging.getLogger("display-test")
    display = Display(logger, clock)
    with caplog.at_level(logging.INFO, logger="display-test"):
        display.lines(b"".join(b"line %d\n" % i for i in range(1000)), 0)
        clock.sleep(60.0)
        display.lines(b"at last\n", 0)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) < 250
    assert messages[-1] == "at last"
    assert "more lines; `headway logs` has all of them" in messages[-2]


def test_a_line_in_pieces_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    display = Display(logging.getLogger("display-test"), FakeClock())
    with caplog.at_level(logging.INFO, logger="display-test"):
        display.lines(b"first ha", 0)
        display.lines(b"lf\n10%\r20%\r30%\n", 7)
    messages = [record.getMessage() for record in caplog.records]
    given_up = "7 B of log are not shown: it came faster than it is read, or is over its limit"
    assert messages == [given_up, "first half", "30%"]


def test_a_stall_is_said() -> None:
    stalled = RemainingEstimate(30.0, 28.0, 33.0, overdue=40.2)
    assert _line(Watched(30.0, None, stalled)).endswith("**no progress for 40 expected reports**")


def warning(measured: float = 0.0) -> RunWarning:
    text = f"holds GPU-a, which was {measured:.1%} busy"
    failure = SilentFailure(Silent.GPU_UNUSED, "r1", "GPU-a", measured, 0.02, text)
    return RunWarning(1, failure, datetime(2026, 1, 1, 12, tzinfo=UTC))


class Updates:
    """Prefect's client, of which only one call is made."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.pages = pages

    def update_artifact(self, key: str, artifact: ArtifactUpdate) -> None:
        self.pages[key] = artifact.data


def test_a_silent_failure_is_logged_when_it_begins_and_shown_while_it_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: dict[str, Any] = {}
    for kind in ("progress", "markdown"):
        monkeypatch.setattr(
            module,
            f"create_{kind}_artifact",
            lambda data, *, key, **_: pages.__setitem__(key, data) or key,
        )
    monkeypatch.setattr(page, "get_client", lambda **_: nullcontext(Updates(pages)))
    clock = FakeClock()
    display = Display(logging.getLogger("display-test"), clock)
    idle = replace(HALF, warnings=(warning(),))
    with caplog.at_level(logging.WARNING, logger="display-test"):
        for now in (HALF, replace(idle, begun=idle.warnings), idle, idle, HALF):
            display.watched(now)
            clock.sleep(3.0)
            if now is idle:
                assert "(since 01 Jan 12:00:00 UTC; goes on)" in pages["warnings"]
                assert pages["remaining-time"].endswith("**holds a GPU and does not use it**")
        display.close()
    assert [record.getMessage() for record in caplog.records] == [
        "gpu_unused: it holds GPU-a, which was 0.0% busy"
    ]
    assert pages["warnings"].startswith("- **holds a GPU and does not use it**: it holds GPU-a")
    assert pages["warnings"].endswith("; no longer so)")


def test_a_run_without_warnings_has_no_artifact_of_them() -> None:
    assert "holds" not in _line(HALF)
    assert warnings_text([], []) == ""


def test_what_ends_at_once_is_left_to_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for kind in ("progress", "markdown"):
        monkeypatch.setattr(
            module, f"create_{kind}_artifact", lambda _, *, key, **__: made.append(key)
        )
    clock = FakeClock()
    short, longer = (Display(logging.getLogger("display-test"), clock) for _ in range(2))
    short.watched(HALF)
    short.close()
    assert made == []
    longer.watched(HALF)
    clock.sleep(3.0)
    longer.watched(HALF)
    longer.close()
    assert set(made) == {"progress", "remaining-time"}
