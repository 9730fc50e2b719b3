"""What notices say: the site's words, and nothing that a chat would act on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headway.model.notice import NoticeKind
from headway.model.run import Exit, ExitKind, RunState
from headway.views.notice_text import array_text, run_text
from tests.unit.views.test_documents import NOON, RECORD

ENDED = replace(
    RECORD, state=RunState.ENDED, node="node-a", started_at=NOON + timedelta(hours=1),
    ended_at=NOON + timedelta(hours=3), exit=Exit(ExitKind.OK, 0, "ended well"),
)  # fmt: skip
HOSTILE = "<!channel> [click](http://evil) <@U1> *b* `c`\n@here"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (Exit(ExitKind.OK, 0, ""), "headway: flights ended well after 2 h"),
        (Exit(ExitKind.FAILED, 3, "no space"), "headway: flights failed with exit status 3 after"),
        (Exit(ExitKind.INFRASTRUCTURE, None, ""), "headway: flights failed after"),
        (Exit(ExitKind.OUT_OF_MEMORY, 137, ""), "headway: flights was killed for memory after"),
        (Exit(ExitKind.CANCELLED, None, ""), "headway: flights was cancelled after"),
    ],
)
def test_how_a_run_ended_is_its_subject(end: Exit, said: str) -> None:
    told = run_text(NoticeKind.ENDED, replace(ENDED, exit=end))
    assert told.subject.startswith(said)
    assert "no space" not in told.body  # words of a program stay out


def test_a_run_that_never_started_has_no_length() -> None:
    refused = replace(
        ENDED, started_at=None, node=None, exit=Exit(ExitKind.REFUSED, None, "no such image")
    )
    told = run_text(NoticeKind.ENDED, refused)
    assert told.subject == "headway: flights failed"
    assert "node" not in told.body


def test_how_long_it_has_waited_is_told_at_its_start() -> None:
    told = run_text(NoticeKind.STARTED, ENDED)
    assert told.subject.startswith("headway: flights has started after 1 h")
    assert "headway show id-1" in told.body


def test_names_are_words_and_nothing_else() -> None:
    hostile = replace(ENDED, name=HOSTILE, owner=HOSTILE, team=HOSTILE, node=HOSTILE)
    for told in (run_text(NoticeKind.ENDED, hostile), array_text(HOSTILE)):
        assert not set("<>[]@*`!\\|~#&") & set(told.subject + told.body)
        assert "\n" not in told.subject
