"""Which folders go: by age, then by size, oldest first."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.retention import Finished, to_remove
from headway.units import DAY_S, GIB

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def run(days: float, size: int = GIB) -> Finished:
    return Finished(f"run-{days:g}", "job", NOW - timedelta(days=days), size)


RUNS = [run(2), run(40), run(10), run(100)]


def gone(keep_days: float | None, keep_bytes: int | None) -> list[str]:
    keep_s = None if keep_days is None else keep_days * DAY_S
    found = to_remove(RUNS, NOW, keep_s=keep_s, keep_bytes=keep_bytes)
    return [removal.run.run_id for removal in found]


def test_without_limits_everything_stays() -> None:
    assert gone(None, None) == []


def test_age_and_size_take_the_oldest() -> None:
    assert gone(30, None) == ["run-100", "run-40"]
    assert gone(None, 3 * GIB) == ["run-100"]
    assert gone(30, GIB) == ["run-100", "run-40", "run-10"]
    assert gone(50, 4 * GIB) == ["run-100"]
    assert gone(None, 0) == ["run-100", "run-40", "run-10", "run-2"]


def test_the_reason_is_said() -> None:
    by_age, by_size = to_remove(RUNS, NOW, keep_s=50 * DAY_S, keep_bytes=2 * GIB)
    assert by_age.why == "it ended 100 d ago; kept are 50 d"
    assert by_size.why == "finished runs take more than 2.0 GiB; it is the oldest left"


@given(
    runs=st.lists(
        st.builds(
            Finished,
            st.uuids().map(str),
            st.just("job"),
            st.floats(-10, 1000).map(lambda days: NOW - timedelta(days=days)),
            st.integers(0, 10 * GIB),
        ),
        unique_by=lambda run: run.run_id,
    ),
    keep_bytes=st.integers(0, 40 * GIB),
)
def test_what_stays_fits_and_nothing_older_than_what_went_stays(
    runs: list[Finished], keep_bytes: int
) -> None:
    removed = [each.run for each in to_remove(runs, NOW, keep_s=None, keep_bytes=keep_bytes)]
    stays = [run for run in runs if run not in removed]
    assert sum(run.size_bytes for run in stays) <= keep_bytes
    if removed and stays:
        assert max(run.ended_at for run in removed) <= min(run.ended_at for run in stays)
