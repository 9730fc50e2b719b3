"""Whose fault it is that an attempt could not begin, by the error."""

import pytest

from headway.errors import HeadwayError
from headway.model.run import ExitKind
from headway.run.settle import exit_of
from headway.staging.errors import CacheFull, SourceMissing, SourceUnreachable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SourceMissing("/data/x", "nothing is there"), ExitKind.REFUSED),
        (SourceUnreachable("/data/x", "it does not answer"), ExitKind.INFRASTRUCTURE),
        (CacheFull("/data/x", 2, 1), ExitKind.REFUSED),
        (CacheFull("/data/x", 2, 1, passes=True), ExitKind.INFRASTRUCTURE),
    ],
)
def test_what_others_stand_in_the_way_of_is_tried_again(
    error: HeadwayError, kind: ExitKind
) -> None:
    assert exit_of(error).kind is kind
