"""What is said of starts: kept once at first and once an hour; a start that recedes is told."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from headway.estimate.starts import StartCalibration
from headway.model.lease import Resource, Wait
from headway.model.run import Span
from headway.model.start_forecast import StartForecast
from headway.policy.plan import Plan, Stay
from headway.policy.settings import PolicySettings
from headway.scheduler.limits import Gates
from headway.scheduler.starts import SaidStarts
from headway.scheduler.waiting import Waiting
from tests.unit.scheduler.test_front import NOON, RECORDS, seen

HOUR = timedelta(hours=1)


class Kept:
    """The table of forecasts in memory."""

    def __init__(self) -> None:
        self.rows: list[StartForecast] = []
        self.settled = 0

    def keep(self, forecasts: list[StartForecast]) -> None:
        self.rows += forecasts

    def settle(self) -> None:
        self.settled += 1

    def of_waiting(self, run_ids: list[str]) -> dict[str, list[StartForecast]]:
        return {run: rows for run in run_ids if (rows := [r for r in self.rows if r.run_id == run])}


def planned(at: timedelta, wait: timedelta) -> Plan:
    now = NOON + at
    ends = [now + wait * each for each in (0.5, 1, 2)]
    wait_s = wait.total_seconds()
    because = Wait(Resource.GPUS, "needs a GPU")
    return Plan(
        (
            Stay(
                "a",
                3,
                because,
                now,
                ends[1],
                ends[0],
                ends[2],
                planned=Span(wait_s / 2, wait_s, 2 * wait_s),
                planned_at=now,
            ),
        )
    )


def said(starts: SaidStarts, at: timedelta, wait: timedelta) -> Stay:
    waiting = Waiting()
    waiting.go_by(PolicySettings(), Gates(), ())
    for each in RECORDS:
        waiting.put(each, (1, 0), ())
    rows = replace(seen({}, None), at=NOON + at)
    (entry,) = starts.keep(planned(at, wait), rows, waiting, StartCalibration()).entries
    assert isinstance(entry, Stay)
    return entry


def ledger(kept: Kept) -> Any:
    return SimpleNamespace(starts=kept)


def test_it_is_kept_when_a_run_joins_and_then_each_hour_over_restarts_too() -> None:
    kept = Kept()
    for minutes in (0, 30, 59):
        said(SaidStarts(ledger(kept)), timedelta(minutes=minutes), HOUR)
    assert [(row.at_submission, row.ahead, row.gpus) for row in kept.rows] == [(True, 2, 1)]
    starts = SaidStarts(ledger(kept))
    for minutes in (61, 62, 125):
        said(starts, timedelta(minutes=minutes), HOUR)
    assert [row.at_submission for row in kept.rows] == [True, False, False]


def test_a_start_later_than_was_said_at_first_is_told_so_and_goes_on_being_told() -> None:
    starts = SaidStarts(ledger(Kept()))
    assert said(starts, timedelta(), HOUR).first_said_latest_at is None
    assert said(starts, HOUR, HOUR).first_said_latest_at is None, "14:00 was within what was said"
    hour_s = HOUR.total_seconds()
    latest_s = StartCalibration().wait(Span(hour_s / 2, hour_s, 2 * hour_s)).high_s
    latest_at = NOON + timedelta(seconds=latest_s)
    for again in (1.1, 2.3):
        receded = said(starts, again * timedelta(seconds=latest_s), HOUR)
        assert receded.first_said_latest_at == latest_at
        assert "later than was said at first: by " in receded.sentence()
        assert f"{latest_at:%H:%M}" in receded.sentence()


def test_the_starts_that_came_are_written_down_when_runs_leave_the_queue() -> None:
    kept = Kept()
    starts = SaidStarts(ledger(kept))
    starts.over({"a"})
    assert kept.settled == 0, "nothing was said of it"
    said(starts, timedelta(), HOUR)
    starts.over({"a", "b"})
    assert kept.settled == 1
