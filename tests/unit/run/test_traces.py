"""What an attempt teaches by how it ended."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from headway.ledger.records import Neighbour
from headway.model.lease import Basis, Demand, GpuGrant, Lease, Sharing
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.trace import AFTER, Beside
from headway.run.settle import after_count, lesson, slowed_by, told_to
from headway.units import GIB

MEASURED = Measurement(60.0, host_peak_bytes=2 * GIB, gpu_peak_bytes=5 * GIB)
GUESSED = Demand(GIB, gpus=1, gpu_memory_basis=Basis.PRIOR)


@pytest.mark.parametrize("kind", [ExitKind.TIMED_OUT, ExitKind.CANCELLED, ExitKind.PREEMPTED])
def test_what_was_cut_short_teaches_what_it_held_of_a_gpu_and_nothing_else(kind: ExitKind) -> None:
    found = lesson(Exit(kind, None, ""), MEASURED, GUESSED, 0, reports=2)
    assert found == Measurement(gpu_peak_bytes=5 * GIB)


@pytest.mark.parametrize(
    ("measured", "demand", "reports"),
    [
        (MEASURED, GUESSED, 1),  # it may not have trained on a batch yet
        (MEASURED, Demand(GIB, gpus=1, gpu_memory_basis=Basis.DECLARED), 2),
        (MEASURED, Demand(GIB, gpus=1, gpu_memory_basis=Basis.PREDICTED), 2),
        (Measurement(60.0), GUESSED, 2),  # the driver did not tell
    ],
)
def test_what_was_cut_short_teaches_nothing_where_more_is_known_or_less_was_seen(
    measured: Measurement, demand: Demand, reports: int
) -> None:
    assert lesson(Exit(ExitKind.TIMED_OUT, None, ""), measured, demand, 0, reports=reports) is None


def test_a_failure_teaches_nothing() -> None:
    assert lesson(Exit(ExitKind.FAILED, 1, ""), MEASURED, GUESSED, 0, reports=9) is None


def test_how_long_it_went_on_when_the_first_total_was_reached() -> None:
    first = [ProgressPoint(float(at), at, total=10) for at in range(1, 11)]
    second = [ProgressPoint(10.0 + at, at, total=None) for at in range(1, 8)]
    assert after_count([*first, *second], 19.0) == {AFTER: 9.0}
    assert after_count([ProgressPoint(4.0, epoch=3.0, total=3)], 4.5) == {AFTER: 0.5}
    # Of a program that tells of every third: its tenth was due at 10 s.
    assert after_count(first[:9:3] + first[8:9], 19.0)[AFTER] == pytest.approx(9.0)
    assert after_count(first[:-2], 19.0) == {}  # it ended early, or told no more
    assert after_count(first, None) == {}
    # Of a count without a total, where it came to; what it says again later is no count.
    assert after_count([*second, second[-1]._replace(t_s=18.5)], 19.0) == {AFTER: 2.0}
    assert after_count([], 19.0) == {}


@pytest.mark.parametrize("total", [None, 1000])
def test_a_count_that_stands_still_tells_nothing_of_its_end(total: int | None) -> None:
    first = ProgressPoint(1.0, iteration=100, total=1000)
    still = [ProgressPoint(at_s, iteration=500, total=total) for at_s in (2.0, 3.0)]
    assert after_count([first, *still], 9.0) == {}
    assert after_count([first, still[0], still[1]._replace(iteration=400)], 9.0) == {}


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SLOWED = [ProgressPoint(10.0 * at, at) for at in range(21)]
SLOWED += [ProgressPoint(200.0 + 15.0 * at, 20 + at) for at in range(1, 21)]
"""Alone for 200 s, then each iteration takes half as long again."""
SHARED = Lease(
    1, "own", 1, "n", "t", GIB, 1.0, (GpuGrant("GPU-0", GIB),), {}, NOON, NOON + timedelta(hours=1)
)


@dataclass
class Attempt:
    """What is asked of an attempt that ends."""

    job: Any
    there: list[Neighbour]
    lease: Lease | None = SHARED
    run_id: str = "own"
    number: int = 1

    @property
    def site(self) -> Any:
        leases = SimpleNamespace(neighbours=lambda _lease, most: self.there[:most])
        progress = SimpleNamespace(series=lambda _run, _attempt: SLOWED)
        return SimpleNamespace(ledger=SimpleNamespace(leases=leases, progress=progress))


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


OTHER = Neighbour(
    "other", "red", {"training": {"network": "BERT", "batch_size": 8}},
    after(190.0), after(195.0), None, None,
)  # fmt: skip
JOB = SimpleNamespace(nodes=1, profile=None, requirements="")


def test_whom_an_attempt_shared_its_gpu_with_is_measured_by_its_progress() -> None:
    found = slowed_by(Attempt(JOB, [OTHER]), NOON)  # type: ignore[arg-type]
    assert found == [("other", Beside("bert", 8, "red", 1.5))]


def test_each_neighbour_of_another_team_is_told_and_none_is_named() -> None:
    slowed = [
        ("mine", Beside("bert", 8, "red", 1.5)),
        ("one", Beside("bert", 8, "blue", 1.2)),
        ("two", Beside("gpt", 8, "green", 2.0)),
    ]
    assert told_to("red", slowed) == {
        "mine": 1.5, "a run of another team (1)": 1.2, "a run of another team (2)": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "started_at"),
    [
        (Attempt(JOB, []), NOON),
        (Attempt(JOB, [OTHER]), None),
        (Attempt(JOB, [OTHER], lease=None), NOON),
        (Attempt(JOB, [OTHER], replace(SHARED, gpus=())), NOON),
        (Attempt(JOB, [OTHER], replace(SHARED, gpus=(GpuGrant("G", 1, Sharing.WHOLE),))), NOON),
        (Attempt(SimpleNamespace(nodes=2, profile=None, requirements=""), [OTHER]), NOON),
        (Attempt(SimpleNamespace(nodes=1, profile=object(), requirements=""), [OTHER]), NOON),
        # When the program began beside whose environment was made is not known.
        (Attempt(SimpleNamespace(nodes=1, profile=None, requirements="r.txt"), [OTHER]), NOON),
        (Attempt(JOB, [replace(OTHER, job={"requirements": "r.txt"})]), NOON),
        (Attempt(JOB, [OTHER] * 51), NOON),
        # What it runs may not be read here any more; it was there all the same.
        (Attempt(JOB, [replace(OTHER, job=None)]), NOON),
    ],
)
def test_where_that_cannot_be_told_nothing_is(
    attempt: Attempt, started_at: datetime | None
) -> None:
    assert slowed_by(attempt, started_at) == []  # type: ignore[arg-type]
