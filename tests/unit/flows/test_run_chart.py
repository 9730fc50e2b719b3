"""The chart of a run never ends the run, and is not drawn before it is time."""

import logging
import sys

import pytest

from flows import run_chart as module
from flows.run_chart import RunChart
from headway.run.follow import Watched
from headway.runtime.port import Usage


def at(elapsed_s: float) -> Watched:
    return Watched(elapsed_s, None, None, Usage(host_used_bytes=1))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pictures as they would be sent to Prefect."""
    sent: list[str] = []
    monkeypatch.setattr(module, "create_markdown_artifact", lambda text, **_: sent.append(text))
    return sent


def test_nothing_is_drawn_in_the_first_half_minute(shown: list[str]) -> None:
    asked: list[int] = []
    chart = RunChart(logging.getLogger("run-chart"), lambda: asked.append(1) or [], 2)
    for elapsed_s in (0.2, 10.0, 29.0):
        chart.watched(at(elapsed_s))
    assert (asked, shown) == ([], [])
    chart.watched(at(31.0))
    assert asked == [1]
    chart.close()
    assert [text.partition("](")[2][:22] for text in shown] == ["data:image/png;base64,"]


def test_a_ledger_that_is_away_costs_only_the_picture(shown: list[str]) -> None:
    def away() -> list[object]:
        raise ConnectionError("gone")

    chart = RunChart(logging.getLogger("run-chart"), away, 2)  # type: ignore[arg-type]
    for elapsed_s in (0.2, 31.0, 62.0):
        chart.watched(at(elapsed_s))
    chart.close()
    assert shown == []


def test_without_matplotlib_a_run_has_no_picture_and_goes_on(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "headway.views.charts", None)
    chart = RunChart(logging.getLogger("run-chart"), list, 2)
    for elapsed_s in (0.2, 31.0, 62.0):
        chart.watched(at(elapsed_s))
    chart.close()
    assert shown == []


def test_a_run_too_short_for_a_line_has_no_chart(shown: list[str]) -> None:
    chart = RunChart(logging.getLogger("run-chart"), list, 2)
    chart.watched(at(0.2))
    chart.close()
    assert shown == []
