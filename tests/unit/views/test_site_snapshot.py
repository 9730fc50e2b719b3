"""How far a run is, as people are told it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headway.estimate.usual import Usual
from headway.model.attempt_record import ProgressSnapshot
from headway.model.run import Prediction, RunState, Span
from headway.views.site_snapshot import standing_of
from tests.unit.scheduler.test_front import NOON, RECORDS

LEARNT = Prediction(10.0, 8.0, 12.0, basis="recent: 3 runs of this job")
RUN = replace(RECORDS[0], state=RunState.RUNNING, started_at=NOON, prediction=LEARNT)
FAR = ProgressSnapshot("b", RUN.attempt, NOON + timedelta(seconds=60), 60.0)


@pytest.mark.parametrize(
    ("far", "left"),
    [
        (replace(FAR, done_frac=0.5, remaining_s=9.0, low_s=5.0, high_s=20.0), (8.0, 4.0, 19.0)),
        (replace(FAR, done_frac=0.5, remaining_s=9.0), (8.0, 8.0, 8.0)),
        (replace(FAR, done_frac=0.5, remaining_s=9.0, low_s=0.0, high_s=9.0), (None, 0.0, 8.0)),
        # It was told a twentieth of its age where nothing is known, and for as long as it lasted.
        (FAR, (None, None, None)),
        (replace(FAR, done_frac=1.0), (None, None, None)),
        (replace(FAR, done_frac=0.9, remaining_s=0.4, low_s=0.3, high_s=0.5), (None, None, None)),
    ],
    ids=["all", "middle alone", "at most", "outlasted", "goes on", "over"],
)
def test_what_is_told_is_what_who_follows_it_knows(
    far: ProgressSnapshot, left: tuple[float | None, ...]
) -> None:
    now = standing_of(RUN, far, Usual([]), NOON + timedelta(seconds=61))
    assert (now.remaining_s, now.remaining_low_s, now.remaining_high_s) == left


def test_before_its_first_word_its_program_has_not_begun() -> None:
    now = standing_of(RUN, None, Usual([]), NOON + timedelta(seconds=2))
    assert now.left == Span(8.0, 10.0, 12.0)
