"""How much runs slow each other down: measured from reports of progress, and learnt."""

import math
from collections.abc import Sequence

import pytest

from headway.estimate.estimator import Estimators, digest
from headway.estimate.evaluation.compare import pair_error, with_pairs_of
from headway.estimate.features import Configuration
from headway.estimate.physics import shipped
from headway.estimate.programs import Presence, Program, program_of, slow_downs
from headway.estimate.sharing import PairModel
from headway.model.progress import ProgressPoint
from headway.model.trace import Beside, Trace

NEVER = math.inf


def course(*parts: tuple[int, float]) -> list[ProgressPoint]:
    """Reports of ten iterations each: so many, each so many seconds after the one before."""
    points, at_s = [ProgressPoint(0.0, 0)], 0.0
    for count, took_s in parts:
        for _ in range(count):
            at_s += took_s
            points.append(ProgressPoint(at_s, 10 * len(points)))
    return points


def there(
    run_id: str,
    came_s: float,
    began_s: float,
    ended_s: float = NEVER,
    left_s: float = NEVER,
) -> Presence:
    return Presence(run_id, came_s, began_s, ended_s, left_s)


def test_a_slow_down_is_told_by_what_was_done_alone_and_beside() -> None:
    points = course((20, 10.0), (20, 15.0), (20, 10.0))
    assert slow_downs(points, [there("other", 198.0, 200.0, 500.0, 502.0)]) == {"other": 1.5}
    # Nobody was there, or nothing was reported.
    assert slow_downs(points, []) == {}
    assert slow_downs([], [there("other", 0.0, 1.0)]) == {}
    # Where it counts both now and then, what most reports have in common is compared.
    mixed = [(at % 2 and p._replace(epoch=p.iteration / 10)) or p for at, p in enumerate(points)]
    mixed[30] = mixed[30]._replace(iteration=None, epoch=30.0)
    assert slow_downs(mixed, [there("other", 198.0, 200.0, 500.0, 502.0)]) == {"other": 1.5}
    # By epochs, where it counts no iterations.
    epochs = [p._replace(iteration=None, epoch=p.iteration / 10) for p in points if p.iteration]
    assert slow_downs(epochs, [there("other", 198.0, 200.0, 500.0, 502.0)]) == {"other": 1.5}


def test_while_another_one_only_comes_or_goes_nothing_is_told() -> None:
    # It holds its place for 200 s before its program runs; its start is as slow as it likes.
    points = course((20, 10.0), (2, 100.0), (20, 15.0), (20, 10.0))
    assert slow_downs(points, [there("other", 200.0, 400.0, 700.0, 705.0)]) == {"other": 1.5}
    # Its program never ran, or is not known to have.
    assert slow_downs(points, [there("other", 200.0, NEVER, NEVER, 705.0)]) == {}
    # A span in which it ended is neither: here every one is.
    long = course((6, 100.0), (6, 150.0), (6, 100.0))
    comes = [there("other", at, at + 1, at + 20, at + 21) for at in range(630, 1500, 100)]
    assert slow_downs(long, comes) == {}


def test_two_neighbours_at_once_are_credited_to_none() -> None:
    points = course((20, 10.0), (20, 15.0), (20, 40.0), (20, 20.0), (20, 10.0))
    both = [
        there("one", 199.0, 200.0, 1300.0, 1301.0),
        there("two", 499.0, 500.0, 1700.0, 1701.0),
    ]
    assert slow_downs(points, both) == {"one": 1.5, "two": 2.0}
    always = [there("one", 199.0, 200.0, 1700.0, 1701.0), *both[1:]]
    assert slow_downs(points, always) == {"one": 1.5}


@pytest.mark.parametrize(
    ("parts", "came_s", "left_s"),
    [
        (((20, 15.0),), 0.0, NEVER),  # it never was alone
        (((3, 10.0), (20, 15.0)), 30.0, NEVER),  # alone for three reports
        (((20, 1.0), (20, 15.0)), 20.0, NEVER),  # alone for 20 s
        (((20, 10.0), (3, 15.0), (20, 10.0)), 200.0, 245.0),  # beside it for three
        (((20, 10.0), (20, 15.0), (20, 20.0)), 200.0, 500.0),  # it changed by itself
    ],
)
def test_where_too_little_was_seen_nothing_is_told(
    parts: Sequence[tuple[int, float]], came_s: float, left_s: float
) -> None:
    other = there("other", came_s, came_s, left_s, left_s)
    assert slow_downs(course(*parts), [other]) == {}


def test_what_no_neighbour_does_is_no_slow_down() -> None:
    other = [there("other", 198.0, 200.0)]
    assert slow_downs(course((20, 10.0), (20, 4.0)), other) == {}
    points = course((20, 10.0), (20, 15.0))
    odd = [p._replace(iteration=None, epoch=math.inf if p.t_s > 250 else p.t_s) for p in points]
    assert slow_downs(odd, other) == {}


def test_pauses_and_a_slow_start_do_not_move_it() -> None:
    points = course((1, 300.0), (20, 10.0), (1, 200.0), (20, 15.0), (1, 300.0), (20, 15.0))
    assert slow_downs(points, [there("other", 699.0, 700.0)]) == {"other": 1.5}


def test_a_program_is_told_from_the_job_as_a_trace_names_it() -> None:
    named = {"training": {"network": "ResNet-50", "batch_size": 64}, "image": "i", "name": "n"}
    assert program_of(named, "red") == Program("resnet-50", 64, "red")
    assert program_of({"image": "Img", "name": "n"}, "") == Program("img:n")
    assert program_of({"training": "nonsense"}, "") == Program(":")


SLOWS = {"light": 1.1, "middle": 1.5, "heavy": 2.4}


def pairs(*, team: str = "", whose: str = "", times: float = 1.0) -> list[Trace]:
    """A run of each program, slowed by each of the others."""
    return [
        Trace(
            network=own,
            gpu_type="v100",
            gpus=1,
            batch_size=32,
            runtime_s=100.0,
            team=team,
            run_id=f"{own}-{team}",
            beside=tuple(
                Beside(other, 32, whose, times * math.sqrt(SLOWS[own]) * SLOWS[other])
                for other in SLOWS
            ),
        )
        for own in SLOWS
    ]


def asked(own: str, beside: str, gpu_type: str = "v100") -> Configuration:
    return Configuration(
        network=own, recipe=own, batch_size=32, gpu_type=gpu_type,
        beside=beside, beside_batch_size=32,
    )  # fmt: skip


def fitted(traces: Sequence[Trace], team: str = "") -> PairModel:
    found = PairModel.fit(traces, {"", team}, shipped(), 0)
    assert found is not None
    return found


def test_measured_pairs_are_learnt_and_others_are_unknown() -> None:
    model = fitted(pairs())
    known = [asked(own, "heavy") for own in SLOWS]
    said = model.says(known)
    for own, each in zip(SLOWS, said, strict=True):
        assert each == pytest.approx(math.sqrt(SLOWS[own]) * 2.4, rel=0.2)
    unknown = [asked("new", "heavy"), asked("heavy", "new"), asked("heavy", "heavy", "a100")]
    assert model.says(unknown) == [None, None, None]
    assert PairModel.fit(pairs()[:1], {""}, shipped(), 0) is None  # three are too few
    assert min(each or 0.0 for each in model.says([*known])) >= 1.0


def test_a_team_learns_of_pairs_of_its_own_alone() -> None:
    theirs = pairs(team="red", whose="blue")
    assert PairModel.fit(theirs, {"", "red"}, shipped(), 0) is None
    assert fitted(pairs(team="red", whose="red"), "red").beside == set(SLOWS)


def test_what_is_known_of_pairs_is_judged_on_pairs_that_it_has_not_seen() -> None:
    nothing, known = Estimators(), Estimators(pairs=fitted(pairs()))
    wrong = Estimators(pairs=fitted(pairs(times=6.0)), teams={"red": Estimators()})
    assert pair_error(known, pairs()) < pair_error(nothing, pairs()) < pair_error(wrong, pairs())
    assert pair_error(wrong, []) == 0.0
    kept = with_pairs_of(known, wrong)
    assert kept.pairs is known.pairs
    assert kept.of("red").pairs is known.pairs


def test_a_trace_without_pairs_is_the_one_that_it_was_before_they_were_kept() -> None:
    alone = Trace("light", "v100", 1, 32, runtime_s=100.0)
    # As a version before has written it down for the runs that its champion was fitted on.
    assert digest(alone) == 7881931847236069886
