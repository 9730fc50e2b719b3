"""Notices in the ledger: written with the act that they tell of, and taken once."""

import threading
from datetime import timedelta

import pytest

from headway.ledger import Ledger
from headway.model.array import Array
from headway.model.notice import LONG_WAIT_S, NoticeKind
from headway.model.run import Exit, ExitKind, Measurement
from headway.policy.settings import LINE
from tests.support.fence import fence_of
from tests.support.on_ledger import enqueue, granted, join

JOB = {"name": "digits", "image": "i", "command": ["train"], "notify": ["slack-webhook/v"]}
WELL = Exit(ExitKind.OK, 0, "done")


@pytest.fixture(autouse=True)
def _has_a_node(ledger: Ledger) -> None:
    join(ledger)


def started(ledger: Ledger, run_id: str, *, waited_s: float = 0.0, **job: object) -> None:
    since = ledger.now() - timedelta(seconds=waited_s)
    enqueue(ledger, run_id, {**JOB, **job}, submitted_at=since)
    lease = granted(ledger, run_id)
    for _ in range(2):  # whoever asks twice is told once
        ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)


def ended(ledger: Ledger, run_id: str) -> None:
    fence = fence_of(ledger, run_id)
    for _ in range(2):
        ledger.runs.finish(fence, WELL, Measurement())


def taken(ledger: Ledger) -> list[tuple[str | None, NoticeKind, str]]:
    return [(each.run_id, each.kind, each.block) for each in ledger.notices.take()]


def test_an_end_is_told_once(ledger: Ledger) -> None:
    started(ledger, "r1")
    assert taken(ledger) == []
    ended(ledger, "r1")
    assert taken(ledger) == [("r1", NoticeKind.ENDED, "slack-webhook/v")]
    assert taken(ledger) == []


def test_a_start_is_told_after_a_long_wait_alone(ledger: Ledger) -> None:
    started(ledger, "soon", waited_s=LONG_WAIT_S - 60)
    started(ledger, "late", waited_s=LONG_WAIT_S + 1)
    assert taken(ledger) == [("late", NoticeKind.STARTED, "slack-webhook/v")]


@pytest.mark.parametrize("notify", [None, [], "slack-webhook/v", {"a": 1}, [1, None]])
def test_who_wants_to_be_told_by_nothing_is_not(ledger: Ledger, notify: object) -> None:
    started(ledger, "r1", notify=notify)
    ended(ledger, "r1")
    assert taken(ledger) == []


def test_each_block_is_told_once(ledger: Ledger) -> None:
    started(ledger, "r1", notify=["slack-webhook/v", "sendgrid-email/me", "slack-webhook/v"])
    ended(ledger, "r1")
    assert [block for _, _, block in taken(ledger)] == ["slack-webhook/v", "sendgrid-email/me"]


def test_of_an_array_only_its_last_end_is_told(ledger: Ledger) -> None:
    array = ledger.arrays.add(
        JOB, Array({"seed": (1, 2)}), name="sweep", owner="me", team="t", pool="gpu",
        queue="default", key=None, submitted_at=ledger.now(),
    )  # fmt: skip
    for index in (1, 2):
        assert taken(ledger) == []
        member = ledger.arrays.join(array.array_id, index, f"m{index}")
        assert member is not None
        granted(ledger, f"m{index}")
        assert taken(ledger) == []
        ended(ledger, f"m{index}")
    (notice,) = ledger.notices.take()
    assert (notice.array_id, notice.kind) == (array.array_id, NoticeKind.ARRAY_ENDED)


def test_an_array_that_is_handed_in_twice_is_one_and_told_once(ledger: Ledger) -> None:
    """Its client heard no answer to the first."""
    both = [
        ledger.arrays.add(
            JOB, Array({"seed": (1, 2)}), name="sweep", owner="me", team="t", pool="gpu",
            queue="default", key="same", submitted_at=ledger.now(),
        )
        for _ in range(2)
    ]  # fmt: skip
    assert both[0].array_id == both[1].array_id
    ledger.arrays.cancel(both[0].array_id, "by user me")
    assert [each.array_id for each in ledger.notices.take()] == [both[0].array_id]
    assert ledger.notices.take() == []


def test_of_many_senders_one_takes_each(ledger_url: str, ledger: Ledger) -> None:
    for number in range(30):
        started(ledger, f"r{number}")
        ended(ledger, f"r{number}")
    found: list[str | None] = []

    def send() -> None:
        own = Ledger.find(ledger_url)
        while some := own.notices.take():
            found.extend(each.run_id for each in some)
        own.close()

    senders = [threading.Thread(target=send) for _ in range(4)]
    for each in senders:
        each.start()
    for each in senders:
        each.join(60)
    assert sorted(found, key=str) == sorted((f"r{number}" for number in range(30)), key=str)


def test_why_it_was_not_sent_is_kept(ledger: Ledger) -> None:
    started(ledger, "r1")
    ended(ledger, "r1")
    (notice,) = ledger.notices.take()
    ledger.notices.not_sent(notice, "ConnectError: nobody answers")
    assert [each.error for each in ledger.notices.of_run("r1")] == ["ConnectError: nobody answers"]


def test_a_teams_tracker_is_told_of_each_end_until_it_has_taken_it(ledger: Ledger) -> None:
    ledger.settings.put(LINE, {"teams": {"t": {"tracker": "headway-mlflow/t"}}})
    for run_id in ("r1", "r2"):
        started(ledger, run_id, notify=None)
        ended(ledger, run_id)
    array = ledger.arrays.add(
        JOB, Array({"seed": (1,)}), name="sweep", owner="me", team="t", pool="gpu",
        queue="default", key=None, submitted_at=ledger.now(),
    )  # fmt: skip
    assert ledger.arrays.join(array.array_id, 1, "m1") is not None
    granted(ledger, "m1")
    ended(ledger, "m1")
    assert [block for _, _, block in taken(ledger)] == ["slack-webhook/v"]  # of the array
    block = "headway-mlflow/t"
    assert ledger.notices.trackers("gpu") == [block]
    assert ledger.notices.trackers("other") == []
    due = ledger.notices.untracked("gpu", block, [])
    assert [each.run_id for each in due] == ["r1", "r2", "m1"]
    assert ledger.notices.untracked("other", block, []) == []
    assert ledger.notices.untracked("gpu", "headway-mlflow/other", []) == []
    late = [due[0].notice_id]
    assert [each.run_id for each in ledger.notices.untracked("gpu", block, late)] == ["r2", "m1"]
    assert ledger.notices.behind() == []
    ledger.notices.tracked(due[0])
    ledger.notices.not_sent(due[1], "ConnectError")
    assert [each.run_id for each in ledger.notices.untracked("gpu", block, [])] == ["m1", "r2"]
    ledger.notices.tracked(due[2], "400: never")
    assert [each.run_id for each in ledger.notices.untracked("gpu", block, [])] == ["r2"]
    assert [(each.run_id, each.error) for each in ledger.notices.behind()] == [
        ("r2", "ConnectError")
    ]


def test_a_team_without_a_tracker_has_none(ledger: Ledger) -> None:
    ledger.settings.put(LINE, {"teams": {"other": {"tracker": "headway-mlflow/other"}, "t": {}}})
    started(ledger, "r1", notify=None)
    ended(ledger, "r1")
    assert ledger.notices.of_run("r1") == []
