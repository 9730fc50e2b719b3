import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.replay.cluster import Shape, shared_speed
from headway.replay.trace_jobs import TraceJob
from tests.unit.replay.traces import job, run, starts, traces

ONE = Shape(1, 2, 24)


@pytest.mark.parametrize(
    ("total", "jobs", "speed"),
    [(0.9, 1, 1.0), (0.8, 2, 1.0), (0.9, 2, 0.98), (1.0, 2, 0.96), (1.3, 3, 0.87),
     (1.8, 2, 0.70), (2.1, 3, 0.6)],
)  # fmt: skip
def test_the_curve_of_jobs_that_share(total: float, jobs: int, speed: float) -> None:
    assert shared_speed(total, jobs) == pytest.approx(speed)


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


def test_headway_takes_the_shortest_first() -> None:
    rows = [job("a", 0, 100, 2), job("long", 91, 50, 2), job("short", 92, 10, 2)]
    assert starts(run(rows, shape=ONE)) == {"a": 0, "short": 100, "long": 110}


def test_who_has_waited_long_is_not_passed_any_more() -> None:
    short = [job(f"short{at}", 10.0 * at, 10, 2) for at in range(60)]
    rows = [job("a", 0, 10, 2), job("large", 0, 100, 2), *short]
    patient = starts(run(rows, shape=ONE, long_wait=1e9, longest_wait=1e9))
    assert patient["large"] == 610
    assert starts(run(rows, shape=ONE, long_wait=1.0, longest_wait=2.0))["large"] <= 220


def test_jobs_that_share_slow_each_other_while_they_are_together() -> None:
    one = Shape(1, 1, 24)
    rows = [job("a", 0, 96, gpu_util_frac=0.5), job("b", 48, 100, gpu_util_frac=0.5)]
    first, second = run(rows, shape=one).jobs
    # 48 s alone, then at 0.96: 48 / 0.96 = 50 s more; b has done 48 s by then.
    assert first.end_s == pytest.approx(98)
    assert second.end_s == pytest.approx(98 + 100 - 48)


def test_by_memory_alone_jobs_share_that_utilisation_keeps_apart() -> None:
    one = Shape(1, 1, 24)
    rows = [job("a", 0, 100, gpu_util_frac=0.9), job("b", 0, 100, gpu_util_frac=0.9)]
    assert starts(run(rows, sharing="memory", shape=one)) == {"a": 0, "b": 0}
    together = run(rows, sharing="memory", shape=one).jobs
    assert together[0].end_s == pytest.approx(100 / 0.7)
    assert starts(run(rows, sharing="headway", shape=one)) == {"a": 0, "b": 100}
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
    traces(), st.sampled_from(["fifo", "easy", "headway"]), st.sampled_from(["whole", "headway"])
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
                if sharing == "headway":
                    assert sum(o.trace.gpu_util_frac for o in there) <= 1 + 1e-6


@given(traces(), st.integers(1, 3), st.integers(0, 3))
def test_nobody_is_overtaken_more_often_than_stated(
    rows: list[TraceJob], limit: int, more: int
) -> None:
    bound = limit + more
    result = run(rows, overtake_limit=limit, overtake_bound=bound, window=3, patience=1000.0)
    for at, one in enumerate(result.jobs):
        later = [other for other in result.jobs[at + 1 :] if other.start_s < one.start_s]
        assert len(later) <= bound


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
