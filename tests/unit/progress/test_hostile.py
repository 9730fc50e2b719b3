"""Logs that mean harm, or are broken: never an error, never unbounded."""

import json
import math
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.model.progress import ProgressPoint
from headway.progress.lines import MAX_LINE_BYTES
from headway.progress.metrics import MAX_METRICS, numbers_in
from headway.progress.parser import LogParser
from headway.progress.places import Places, Reader, by_shape, shape_of
from headway.progress.seen import MAX_COUNT, Seen

HOSTILE = [
    b'{"headway": {"iteration": 1e999, "total": -1}}',
    b'{"headway": [1, 2]}',
    b'{"headway": {"metrics": 3}}',
    b'{"headway": {"iteration": true}}',
    b'{"headway": {"iteration": 1' + b"0" * 5000 + b"}}",
    b'{"headway": ' + b"[" * 7_000,
    b'{"headway": {"iteration": 1, "epoch": -3, "metrics": {"\\ud800\\u0000": 1}}}',
    b'{"headway": {"iteration": 5, "total": 999999999999999999999}}',
    b"Epoch 999999999/999999999\n1/999999999999 [====] - loss: 1",
    b"Epoch 1/2\n\n 1/0 [====] - 3s - loss: 1",
    b"DLLL {}",
    b'DLLL {"step": [null, {}], "data": []}',
    b"DLL 1 - Epoch: 99999999999999 Iteration: 99999999999999 x : 1",
    b"  1 " + b"9" * 400 + b" 1s",
    b"\xff\xfe\xed\xa0\x80 1%|\xff| 1/2 [00:00<?",
    b"100%|##| 0/0 [00:00<00:00, ?it/s]",
    b"5%|##| 9e9/1 [::::<::::",
    b"\x1b[" + b"9;" * 4000 + b"\x00\x08\x08",
    "Iteration \u0661\u0662, loss = \u0663".encode(),
    "Epoch \u00b2/\u00b3 loss: \u00b2".encode(),
    b"a" * 100 + b"!" * 5000 + b" step = ",
    b"{'loss': nan, 'epoch': nan}",
    b"{'loss': 1, 'epoch': 99999999999999999}",
    b"iter 1: loss 1e99999",
    b"[0]\ttrain-a:" + b"9" * 5000,
]
LINES = [
    b'{"headway": {"iteration": 3, "total": 9}}',
    b"Epoch 2/3",
    b"100/500 [=====>......] - ETA: 2s - loss: 0.9",
    b"Epoch: [0][  10/5005]\tTime  0.345 ( 0.9)\tLoss 6.9 (7.0)",
    b"{'loss': 0.5, 'epoch': 1.0}",
    b" 50%|#####     | 5/10 [00:05<00:05,  1.0it/s]",
    b"epoch 3 step 4/5 loss 0.1",
]


def is_clean(point: ProgressPoint) -> bool:
    """Can it be kept in any database and shown to anybody?"""
    counts = (point.iteration, point.epoch, point.total)
    return (
        all(c is None or (math.isfinite(c) and 0 <= c < 2**63) for c in counts)
        and len(point.metrics) <= MAX_METRICS
        and all(math.isfinite(value) for value in point.metrics.values())
        and all(name.isprintable() and len(name) <= 100 for name in point.metrics)
    )


@pytest.mark.parametrize("line", HOSTILE)
def test_hostile_lines_do_no_harm(line: bytes) -> None:
    assert all(map(is_clean, LogParser(epochs=3).feed(line + b"\n", 0.0)))


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from(HOSTILE), st.sampled_from(LINES)),
        max_size=30,
    )
)
@example(HOSTILE)
@example([*LINES, *HOSTILE, *LINES])
@settings(max_examples=150)
def test_no_bytes_make_it_raise(lines: list[bytes]) -> None:
    parser = LogParser(epochs=10**12)
    assert all(map(is_clean, parser.feed(b"\n".join(lines), 0.0) + parser.finish(1.0)))


def said(iteration: float) -> bytes:
    return json.dumps({"headway": {"iteration": iteration, "total": 900}}).encode() + b"\n"


def test_a_little_backwards_is_a_rank_that_lags() -> None:
    log = b"".join(map(said, (3, 1, 2, 3, 4, 0, 5)))
    assert [p.iteration for p in LogParser().feed(log, 0.0)] == [3, 4, 5]


def test_far_back_and_rising_is_a_program_that_started_over() -> None:
    parser = LogParser()
    points = parser.feed(b"".join(map(said, (100, 200, 10, 20, 30, 40))), 0.0)
    assert [p.iteration for p in points] == [100, 200, 30, 40]
    assert parser.restarts == 1


def test_one_forged_line_does_not_hide_the_rest() -> None:
    log = b"".join(map(said, (1, 2, MAX_COUNT, 3, 4, 5, 6)))
    assert [p.iteration for p in LogParser().feed(log, 0.0)][-1] == 6


def test_lines_of_another_rank_are_passed_over() -> None:
    log = b"".join(
        b"[rank%d]: step %d/100 loss %d.5\n" % (rank, step, rank)
        for rank in (0, 1, 2)
        for step in range(1, 50)
    )
    points = LogParser().feed(log, 0.0)
    assert [p.iteration for p in points] == list(range(1, 50))
    assert {p.metrics["loss"] for p in points} == {0.5}


def test_nan_is_told_as_such_and_infinity_is_no_metric() -> None:
    log = (
        b'{"headway": {"iteration": 1, "metrics": {"loss": NaN, "lr": 0.1}}}\n'
        b'{"headway": {"iteration": 2, "metrics": {"loss": Infinity, "x": 1e999, "lr": 0.2}}}\n'
        b'{"headway": {"iteration": NaN}}\n'
    )
    assert [dict(p.metrics) for p in LogParser().feed(log, 0.0)] == [
        {"loss.nan": 1.0, "lr": 0.1}, {"lr": 0.2},
    ]  # fmt: skip
    (point,) = LogParser().feed(b"Iteration 3, loss = nan, nancy = nan7, acc: -NaN\n", 0.0)
    assert point.metrics == {"loss.nan": 1.0, "acc.nan": 1.0}
    (point,) = LogParser().feed(b"Iteration 4, loss: NAN acc: nan - f1: nan\n", 0.0)
    assert point.metrics == {"loss.nan": 1.0, "acc.nan": 1.0, "f1.nan": 1.0}


def test_words_that_begin_as_nan_are_no_metrics() -> None:
    log = b"Iteration 3, loss: 0.5, user: Nan Li, city: Nan-Chang, dtype: nan-safe, by: nan_mean\n"
    (point,) = LogParser().feed(log, 0.0)
    assert point.metrics == {"loss": 0.5}


def test_an_endless_line_is_bounded_in_memory_and_time() -> None:
    parser = LogParser()
    began_s = time.process_time()
    for _ in range(100):
        assert parser.feed(b"[=>" * 349_525, 0.0) == []
    assert len(parser._splitter._rest) <= MAX_LINE_BYTES
    assert time.process_time() - began_s < 5.0
    (point,) = parser.feed(b"\nIteration 1, loss = 0.5\n", 1.0)
    assert (point.iteration, dict(point.metrics)) == (1, {"loss": 0.5})


def all_metrics() -> Reader:
    find = by_shape(lambda shape: Places({}, numbers_in(shape)))
    return lambda line, shape: find(shape).read(line)


def read(reader: Reader, text: str) -> Seen | None:
    return reader(text, shape_of(text))


remembering = all_metrics()


@given(st.text(st.sampled_from("lossacc159 :=.e+-'\",()[]\u00e9"), max_size=60))
@settings(max_examples=300)
def test_the_memory_of_shapes_changes_no_result(text: str) -> None:
    fresh = read(all_metrics(), text)
    other = text.translate(str.maketrans("159", "951"))
    read(remembering, other)  # same shape, other digits
    assert read(remembering, text) == fresh


def test_a_better_format_takes_over() -> None:
    log = (
        "Downloading weights: 100%|##########| 50/50 [00:30<00:00, 9.9it/s]\n"
        "step 1: fetching\nEpoch 1/2\n500/500 - 3s - loss: 0.6\n"
    )
    parser = LogParser()
    assert [p.iteration for p in parser.feed(log.encode(), 0.0)] == [500]
    assert parser.format == "keras"


def test_a_log_that_says_nothing_is_no_error() -> None:
    parser = LogParser()
    assert parser.feed(b"hello\nloss is a function\n2026-01-01 00:00:01 ready\n", 0.0) == []
    assert parser.format is None


def test_a_jobs_own_expression_wins() -> None:
    parser = LogParser(r"round (?P<iteration>\d+) of (?P<total>\d+): err (?P<err>[0-9.]+)")
    (point,) = parser.feed(b"Iteration 5, loss = 1.0\nround 2 of 8: err 0.25\n", 0.0)
    assert (point.iteration, point.total, dict(point.metrics)) == (2, 8, {"err": 0.25})
    assert parser.format == "custom"


@pytest.mark.parametrize("pattern", ["(unclosed", r"(?P<iteration>\d+)(?=x)", "(a)", "x" * 2000])
def test_an_expression_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        LogParser(pattern)


def test_an_expression_that_explodes_elsewhere_is_linear_here() -> None:
    parser = LogParser(r"^(?P<loss>(a+)+)+(?P<iteration>\d+)$")
    began_s = time.process_time()
    assert parser.feed(b"a" * 8000 + b"!\n", 0.0) == []
    assert time.process_time() - began_s < 1.0


def test_a_better_format_takes_over_after_many_lines_of_words() -> None:
    words = b"".join(b"step %d/9000 loss 0.5\n" % step for step in range(1, 500))
    parser = LogParser()
    assert len(parser.feed(words, 0.0)) == 499
    assert [p.iteration for p in parser.feed(said(7), 0.0)] == [7]
    assert parser.format == "headway"
