from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.policy.settings import PolicySettings
from headway.replay.history import History
from headway.replay.metrics import document
from headway.replay.simulate import PolicyName, Result
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob, read_jobs
from tests.unit.replay.traces import job, run

HEADER = (
    "job_id,team,submit_s,duration_s,gpus,gpu_memory_bytes,gpu_util_frac,user_limit_s,"
    "predicted_s,predicted_high_s"
)
ROW = "a,red,5,100,1,1000,0.5,3600,90,130"


def parsed(*lines: str, estimates: str = "learned", sharing: str = "headway") -> list[TraceJob]:
    text = "\n".join(lines) + "\n"
    return read_jobs(text.encode(), "t.csv", Estimates(estimates), GpuSharing(sharing))


def test_estimates_choose_what_is_told() -> None:
    (one,) = parsed(HEADER, ROW, estimates="given")
    told = {kind: History(kind).told(one)[:2] for kind in Estimates}
    assert told == {
        "user": (3600, 3600),
        "given": (90, 130),
        "perfect": (100, 100),
        "learned": (900, 3600),  # nothing has ended yet: the prior by the user's limit
    }


def test_jobs_come_in_the_order_of_submission_from_zero() -> None:
    got = parsed(HEADER, ROW, ROW.replace("a,red,5", "b,red,2"))
    assert [(one.job_id, one.submit_s) for one in got] == [("b", 0), ("a", 3)]


def test_only_the_columns_that_count_are_needed() -> None:
    lines = ("submit_s,duration_s,gpus", "0,1,1")
    assert parsed(*lines, estimates="perfect", sharing="whole")
    with pytest.raises(InvalidInput, match=r"add gpu_memory_bytes, .*predicted_high_s"):
        parsed(*lines, estimates="given")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",100,", ",nan,", r't\.csv:2 duration_s: got "nan"'),
        (",100,", ",,", r't\.csv:2 duration_s: got ""'),
        (",100,", ",-1,", r't\.csv:2 duration_s: got "-1"'),
        (",100,", ",inf,", r't\.csv:2 duration_s: got "inf"'),
        (
            ",100,",
            ",1e308,",
            r't\.csv:2 duration_s: got "1e308"; give a number less than or',
        ),
        (",100,", ",soon,", r't\.csv:2 duration_s: got "soon"'),
        ("red,5", "red,-5", r't\.csv:2 submit_s: got "-5"'),
        (",1,1000", ",0,1000", r't\.csv:2 gpus: got "0"; give a number greater than or equal to 1'),
        (",1,1000", ",1.5,1000", r't\.csv:2 gpus: got "1.5"'),
        ("0.5,", "-0.5,", r't\.csv:2 gpu_util_frac: got "-0.5"'),
    ],
)
def test_a_value_that_is_not_allowed_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parsed(HEADER, ROW.replace(old, new))


def test_a_job_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r't\.csv:3 job_id: got "a"; it is there twice'):
        parsed(HEADER, ROW, ROW)


@pytest.mark.parametrize("row", [ROW + ",7", ROW + ",", "x," + ROW + ",7"])
def test_a_row_with_more_cells_than_the_header_is_refused(row: str) -> None:
    cells = row.count(",") + 1
    with pytest.raises(InvalidInput, match=rf"t\.csv:2 cells: got {cells}; give 10, as the header"):
        parsed(HEADER, row, ROW.replace("a,", "b,"))
    with pytest.raises(InvalidInput, match=rf"t\.csv:3 cells: got {cells}"):
        parsed(HEADER, ROW, row)


@pytest.mark.parametrize("text", [b"", b"\n", HEADER.encode(), b"\xff\xfe\x00", b'a,b\n"1,2\n'])
def test_what_is_no_trace_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^t\.csv"):
        read_jobs(text, "t.csv", Estimates.PERFECT, GpuSharing.WHOLE)


def figures(result: Result) -> dict[str, Any]:
    return document(result, PolicyName.FIFO, Estimates.PERFECT, GpuSharing.WHOLE, PolicySettings())


def test_the_figures() -> None:
    rows = [job("a", 0, 100, 2), job("b", 0, 4, 2), job("c", 10, 200, 2)]
    result = run(rows, "fifo", "whole")
    got = figures(result)
    assert got == {
        "policy": "fifo",
        "estimates": "perfect",
        "sharing": "whole",
        "jobs": 3,
        "mean_wait_s": 0.0,
        "median_wait_s": 0.0,
        "p95_wait_s": 0.0,
        "max_wait_s": 0.0,
        "mean_completion_s": pytest.approx(304 / 3),
        "mean_bounded_slowdown": 1.0,
        "utilisation_frac": pytest.approx(608 / (4 * 210)),
        "makespan_s": 210.0,
        "mean_stretch": 1.0,
        "promises": 0,
        "promises_broken": 0,
        "latest_s": 0.0,
        "starts": None,
        "by_gpus": [{"gpus": 2, "jobs": 3, "mean_wait_s": 0.0, "max_wait_s": 0.0}],
        "by_user": [{"user": "", "jobs": 3, "mean_wait_s": 0.0, "max_wait_s": 0.0}],
        "by_team": [
            {
                "team": "team",
                "jobs": 3,
                "mean_wait_s": 0.0,
                "max_wait_s": 0.0,
                # b comes behind 200 GPU-seconds on 4 GPUs, c ten seconds later behind 168.
                "first_come_wait_s": pytest.approx((0 + 50 + 42) / 3),
            }
        ],
    }


def test_waits_and_slowdown() -> None:
    rows = [job("a", 0, 100, 4), job("b", 0, 4, 4)]
    result = run(rows, "fifo", "whole")
    got = figures(result)
    assert (got["mean_wait_s"], got["max_wait_s"]) == (50.0, 100.0)
    assert got["mean_bounded_slowdown"] == pytest.approx((1 + 104 / 10) / 2)
