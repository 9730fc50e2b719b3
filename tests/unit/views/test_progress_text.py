"""How far a run is, in words."""

from datetime import UTC, datetime

import pytest

from headway.model.attempt_record import ProgressSnapshot
from headway.model.run import Span
from headway.views.tables import progress_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def far(**said: float | None) -> ProgressSnapshot:
    return ProgressSnapshot("r", 1, NOON, 60.0, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "left", "text"),
    [
        (None, None, ""),
        (far(), None, ""),
        (far(iteration=10, total=40, done_frac=0.25), None, "25% (at iteration 10 of 40)"),
        (
            far(epoch=10, total=40, done_frac=0.25),
            Span(170, 180, 200),
            "25% (at epoch 10 of 40), 3 min left",
        ),
        (far(done_frac=0.25), Span(0, 60, 60), "25%, at most 1 min left"),
        (far(done_frac=1.0), None, "100%, and it goes on; how long is not known"),
        (
            far(iteration=10, total=40, done_frac=0.25),
            Span(100, 180, 400),
            "25% (at iteration 10 of 40), 1 min 40 s to 6 min 40 s left",
        ),
        (
            far(iteration=1000, per_s=8.41),
            None,
            "at iteration 1,000, 8.4/s; how many there will be is not known",
        ),
        (
            far(iteration=5, per_s=3123.4),
            None,
            "at iteration 5, 3,123/s; how many there will be is not known",
        ),
        (far(epoch=2.0), None, "at epoch 2, how many there will be is not known"),
        (
            far(epoch=2.0, per_s=0.013),
            Span(0, 60, 90),
            (
                "at epoch 2, 0.013/s; how many there will be is not known; "
                "at most 1 min 30 s left, as long as earlier runs lasted"
            ),
        ),
        (None, Span(58, 60, 62), "58 s to 1 min 2 s left, as long as earlier runs lasted"),
    ],
)
def test_it_says_no_more_than_is_known(
    seen: ProgressSnapshot | None, left: Span | None, text: str
) -> None:
    assert progress_text(seen, left, None) == text


def test_what_is_left_is_told_with_its_cost() -> None:
    text = progress_text(far(done_frac=0.5), Span(50, 60, 70), 1.204)
    assert text == "50%, 1 min left for 1.20 (site's currency)"
