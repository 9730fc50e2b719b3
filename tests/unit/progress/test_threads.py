"""Logs of public threads: nothing false is said of any, and most are read."""

from collections import Counter

import pytest

from tests.support.threads import Thread, Verdict, judge, points_of, threads

THREADS = threads()
FLOOR = 0.88
"""Of the excerpts so many are read right, in each part."""


def verdict(thread: Thread) -> Verdict:
    return judge(thread.truth, points_of(thread.log))


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread.name)
def test_nothing_false_is_said(thread: Thread) -> None:
    assert verdict(thread) is not Verdict.WRONG


@pytest.mark.parametrize("part", ["tuned", "held out", "later"])
def test_most_are_read(part: str) -> None:
    count = Counter(verdict(t) for t in THREADS if t.part == part)
    assert count[Verdict.RIGHT] >= FLOOR * count.total()


@pytest.mark.parametrize(
    ("truth", "log", "expected"),
    [
        ("iteration 7 total 9", b"step 7/9 loss 0.5\n", Verdict.RIGHT),
        ("iteration 5 total 9", b"step 7/9 loss 0.5\n", Verdict.WRONG),
        ("iteration 7", b"step 7/9 loss 0.5\n", Verdict.WRONG),
        ("nothing", b"step 7/9 loss 0.5\n", Verdict.WRONG),
        ("nothing or iteration 7|8 total 9", b"step 7/9 loss 0.5\n", Verdict.RIGHT),
        ("iteration 7 total 9", b"step 7 loss 0.5\n", Verdict.NOT_READ),
        ("epoch 2..3", b"hello\n", Verdict.NOT_READ),
        ("iteration 7", b"step 70 loss 0.5\nstep 5 loss 1\nstep 6 loss 1\nstep 7 loss 1\n",
         Verdict.WRONG),
    ],
)  # fmt: skip
def test_the_judge(truth: str, log: bytes, expected: Verdict) -> None:
    assert judge(truth, points_of(log)) is expected


def test_every_excerpt_is_listed() -> None:
    folder = (THREADS[0].path).parent
    assert {thread.name for thread in THREADS} == {path.stem for path in folder.glob("*.log")}
