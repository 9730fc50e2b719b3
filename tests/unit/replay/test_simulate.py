from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.replay.cluster import Shape
from headway.replay.pair_speeds import pair_speed, shared_speed
from headway.replay.trace_jobs import TraceJob
from tests.unit.replay.traces import job, run, starts, traces

ONE = Shape(1, 2, 24)


def test_measured_pairs_slow_each_other_by_how_heavy_they_are() -> None:
    light, heavy = 0.01, 0.99
    assert shared_speed(0.5, []) == 1.0
    assert pair_speed(light, light) > pair_speed(light, heavy)
    assert pair_speed(heavy, light) > pair_speed(heavy, heavy)
    assert shared_speed(0.5, [0.4, 0.6]) == pair_speed(0.5, 0.4) * pair_speed(0.5, 0.6)
    every = [pair_speed(a / 26 + 0.01, b / 26 + 0.01) for a in range(26) for b in range(26)]
    assert np.mean(every) == pytest.approx(0.65, abs=0.02)


def test_fifo_waits_in_order() -> None:
    rows = [job("a", 0, 100, 1), job("big", 1, 50, 2), job("small", 2, 10, 1)]
    assert starts(run(rows, "fifo", "whole", ONE)) == {"a": 0, "big": 100, "small": 150}


def test_easy_backfills_what_does_not_delay_the_head() -> None:
    rows = [
        job("a", 0, 100, 1),
        job("big", 1, 50, 2),
        job("long", 2, 99, 1),
        job("short", 2, 98, 1),
    ]
    expected = {"a": 0, "big": 100, "long": 150, "short": 2}
    assert starts(run(rows, "easy", "whole", ONE)) == expected


def test_conservative_backfill_delays_nobody_of_the_window() -> None:
    rows = [
        job("a", 0, 100, 3),
        job("wide", 1, 100, 4),
        job("next", 2, 100, 3),
        job("long", 3, 150, 1),
    ]
    easy = starts(run(rows, "easy", "whole"))
    conservative = starts(run(rows, "conservative", "whole"))
    assert (easy["wide"], conservative["wide"]) == (100, 100)
    assert conservative["next"] == 200
    assert conservative["next"] <= easy["next"]


def test_headway_takes_the_shortest_first() -> None:
    rows = [job("a", 0, 100, 2), job("long", 91, 50, 2), job("short", 92, 10, 2)]
    assert starts(run(rows, shape=ONE)) == {"a": 0, "short": 100, "long": 110}


def test_short_jobs_go_first_until_the_promise_of_a_large_one_is_due() -> None:
    short = [job(f"short{at}", 10.0 * at, 10, 2) for at in range(60)]
    rows = [job("a", 0, 10, 2), job("large", 0, 100, 2), *short]
    # By the order alone its turn comes, too: its virtual work goes on.
    assert 110 < starts(run(rows, shape=ONE, promise_factor=1e6))["large"] < 610
    # Ten seconds of another run are before it, and its own work is 100 s of all GPUs.
    assert starts(run(rows, shape=ONE, promise_factor=0.1))["large"] == 20
    assert starts(run(rows, shape=ONE, promise_factor=1.0))["large"] == 110


def test_jobs_that_share_slow_each_other_while_they_are_together() -> None:
    one = Shape(1, 1, 24)
    rows = [job("a", 0, 96, gpu_util_frac=0.5), job("b", 48, 100, gpu_util_frac=0.5)]
    speed = pair_speed(0.5, 0.5)
    first, second = run(rows, shape=one).jobs
    assert 0.5 < speed < 1.0
    assert first.end_s == pytest.approx(48 + 48 / speed)
    assert second.end_s == pytest.approx(48 + 100 + 48 / speed - 48)


def test_by_memory_alone_jobs_share_that_utilisation_keeps_apart() -> None:
    one = Shape(1, 1, 24)
    rows = [job("a", 0, 100, gpu_util_frac=0.9), job("b", 0, 100, gpu_util_frac=0.9)]
    assert starts(run(rows, sharing="memory", shape=one)) == {"a": 0, "b": 0}
    together = run(rows, sharing="memory", shape=one).jobs
    assert together[0].end_s == pytest.approx(100 / pair_speed(0.9, 0.9))
    apart = run(rows, sharing="headway", shape=one, estimates="perfect")
    assert starts(apart) == {"a": 0, "b": 100}
    assert starts(run(rows, sharing="whole", shape=one)) == {"a": 0, "b": 100}


def test_more_gpus_than_a_node_has_make_a_gang() -> None:
    first, gang = run([job("a", 0, 100, 1), job("g", 1, 10, 4)]).jobs
    assert {place.node for place in gang.places} == {0, 1}
    assert gang.start_s == first.end_s


@pytest.mark.parametrize(
    ("row", "field"),
    [(job("a", 0, 1, 5), "gpus"), (job("a", 0, 1, gpu_memory_bytes=25), "gpu_memory")],
)
def test_a_job_that_the_cluster_could_never_hold_is_refused(row: TraceJob, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        run([row])


@given(
    traces(),
    st.sampled_from(["fifo", "easy", "conservative", "headway"]),
    st.sampled_from(["whole", "headway"]),
)
def test_all_jobs_end_and_no_gpu_holds_too_much(
    rows: list[TraceJob], policy: str, sharing: str
) -> None:
    result = run(rows, policy, sharing)
    for one in result.jobs:
        assert one.start_s >= one.trace.submit_s
        assert one.end_s >= one.start_s + one.trace.duration_s - 1e-6
        assert sum(len(place.gpus) for place in one.places) >= one.trace.gpus
    for one in result.jobs:
        for place in one.places:
            for gpu in place.gpus:
                there = [
                    other
                    for other in result.jobs
                    if other.start_s <= one.start_s < other.end_s
                    and any(p.node == place.node and gpu in p.gpus for p in other.places)
                ]
                if sharing == "whole" or one.trace.gpus > 1:
                    assert there == [one]
                assert sum(other.trace.gpu_memory_bytes for other in there) <= 24


@given(traces())
def test_whose_promise_is_due_is_passed_by_nobody_later(rows: list[TraceJob]) -> None:
    """With a factor next to 0 all promises are due at once: no order is left but theirs."""
    truth = [replace(row, gpus=4, submit_s=float(at)) for at, row in enumerate(rows)]
    result = run(truth, promise_factor=1e-9, sharing="whole", estimates="perfect")
    began = [one.start_s for one in result.jobs]
    assert began == sorted(began)


@given(traces())
def test_a_replay_can_be_repeated(rows: list[TraceJob]) -> None:
    assert starts(run(rows)) == starts(run(rows))


@given(traces())
def test_with_perfect_estimates_the_head_is_not_delayed_by_backfill(rows: list[TraceJob]) -> None:
    truth = [job(r.job_id, 0.0, r.duration_s, r.gpus, gpu_memory_bytes=24) for r in rows]
    # All came at once and each ends when predicted: the head starts as if it were alone behind
    # those that run.
    head, others = truth[0], truth[1:]
    running = job("first", 0.0, 50.0, 3)
    alone = starts(run([running, head], "easy", "whole"))
    among = starts(run([running, head, *others], "easy", "whole"))
    assert among[head.job_id] <= alone[head.job_id]
