"""What is known of the runs that hold their places."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headway.estimate.usual import Lasted, Usual, kind_of
from headway.model.run import RunState
from headway.scheduler.snapshot import left_of
from tests.unit.scheduler.test_front import NOON, RECORDS


def test_what_outlives_all_that_others_lasted_is_told_no_end() -> None:
    """A service beside short runs of its owner was about to end for ever, with promised starts."""
    run = replace(RECORDS[0], state=RunState.RUNNING, prediction=None, started_at=NOON)
    usual = Usual([Lasted(kind_of(run.job, "ada", run.team), 1.5)] * 7)
    early = left_of(run, None, usual, NOON + timedelta(seconds=0.5))
    assert early is not None
    assert early.median_s == pytest.approx(1.0, abs=0.3)
    assert left_of(run, None, usual, NOON + timedelta(seconds=30)) is None
    learnt = replace(run, prediction=RECORDS[0].prediction)  # 600 s by repeats of it
    late = left_of(learnt, None, usual, NOON + timedelta(seconds=700))
    assert late is not None
