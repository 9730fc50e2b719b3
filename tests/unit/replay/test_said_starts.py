"""In a replay it is said when jobs will start, and that changes nothing in it."""

from headway.estimate.starts import score
from headway.policy.settings import PolicySettings
from headway.replay.cluster import Shape
from headway.replay.said_starts import SaidStarts
from headway.replay.simulate import PolicyName, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing
from tests.unit.replay.traces import job, starts

ONE = Shape(1, 2, 24)
ROWS = [
    job(f"j{at}", 40.0 * at, 100.0 if at % 3 else 250.0, 1 + at % 2, gpu_util_frac=0.9, recipe="r")
    for at in range(60)
]


def test_what_is_said_comes_and_changes_nothing() -> None:
    said = SaidStarts(1.0)
    results = [
        simulate(
            ROWS, ONE, PolicyName.HEADWAY, GpuSharing.WHOLE, Estimates.LEARNED,
            settings=PolicySettings(), said=each,
        )
        for each in (None, said)
    ]  # fmt: skip
    assert starts(results[0]) == starts(results[1])
    waited = {
        name for name, start_s in starts(results[1]).items() if start_s > 40.0 * int(name[1:])
    }
    assert len(said.forecasts()) == len(waited) > 30
    found = score(said.forecasts())
    assert found is not None
    assert found.coverage_frac > 0.7
    assert found.median_error_frac is not None
    assert found.median_error_frac < 0.5


def test_of_a_share_of_the_jobs_it_is_said_of_so_many() -> None:
    some = SaidStarts(0.3)
    simulate(
        ROWS, ONE, PolicyName.HEADWAY, GpuSharing.WHOLE, Estimates.LEARNED,
        settings=PolicySettings(), said=some,
    )  # fmt: skip
    assert 5 < len(some.forecasts()) < 30


def test_where_each_length_is_known_and_nobody_joins_the_start_is_known() -> None:
    rows = [
        job(f"j{at}", 0.1 * at, 100.0 + 37.0 * (at * 7 % 11), 1 + at % 2, gpu_util_frac=0.9)
        for at in range(40)
    ]
    errors = {}
    for told in (Estimates.LEARNED, Estimates.PERFECT):
        said = SaidStarts(1.0, told)
        simulate(
            rows, ONE, PolicyName.HEADWAY, GpuSharing.WHOLE, Estimates.PERFECT,
            settings=PolicySettings(), said=said,
        )  # fmt: skip
        last = score(said.forecasts()[-3:])  # nobody joins after them
        assert last is not None
        errors[told] = last.median_error_frac
    assert errors[Estimates.PERFECT] is not None
    assert errors[Estimates.PERFECT] < 0.01
    assert errors[Estimates.LEARNED] is not None
    assert errors[Estimates.LEARNED] > 0.1
