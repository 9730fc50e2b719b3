"""Times on a number of GPUs that nobody has tried, from those that somebody has."""

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.estimate.features import Configuration
from headway.estimate.recall import said_of
from headway.estimate.scaling import Point, scaled
from headway.model.run import Prediction
from headway.model.trace import Trace

GAVEL = Path(__file__).parents[2] / "data/runtime-gavel.csv"
KERAS_S = {1: (150.0, 127.0, 82.0), 0: (166.0, 143.0, 89.0)}
"""An epoch of a Keras LSTM on 1, 2 and 4 K80s: of one machine, and of as many machines."""


@pytest.mark.parametrize("one_machine", [True, False])
@pytest.mark.parametrize(("second", "asked"), [(1, 2), (2, 1)])
def test_the_third_number_follows_from_one_gpu_and_another(
    one_machine: bool, second: int, asked: int
) -> None:
    points = [
        Point(gpus, 1 if one_machine else gpus, seconds)
        for gpus, seconds in zip((1, 2, 4), KERAS_S[one_machine], strict=True)
    ]
    said = scaled([points[0], points[second]], points[asked].gpus, points[asked].nodes)
    assert said.seconds == pytest.approx(points[asked].seconds, rel=0.08)
    assert said.low_s < points[asked].seconds < said.high_s


def test_eight_gpus_follow_from_one_two_and_four() -> None:
    curves = defaultdict(list)
    with GAVEL.open() as file:
        for row in csv.DictReader(file):
            point = Point(int(row["gpus"]), int(row["nodes"]), float(row["iteration_s"]))
            curves[row["network"], row["gpu_type"], row["batch_size"]].append(point)
    errors, within = [], []
    for points in curves.values():
        known = [point for point in points if point.gpus < 8]
        for point in points:
            if point.gpus == 8:
                said = scaled(known, 8, point.nodes)
                errors.append(abs(said.seconds / point.seconds - 1))
                within.append(said.low_s <= point.seconds <= said.high_s)
    assert len(errors) == 111
    assert median(errors) <= 0.08
    assert sum(within) / len(within) == pytest.approx(0.8, abs=0.05)


def test_what_was_measured_is_what_is_said_and_more_gpus_are_said_less_surely() -> None:
    points = [Point(1, 1, 100.0), Point(2, 1, 60.0)]
    same, far = scaled(points, 2, 1), scaled(points, 16, 1)
    assert same.seconds == pytest.approx(60.0, rel=0.02)
    assert far.high_s / far.low_s > same.high_s / same.low_s


def test_links_between_nodes_have_a_term_of_their_own() -> None:
    packed = [Point(1, 1, 100.0), Point(2, 1, 51.0), Point(4, 1, 26.0)]
    slow = [*packed, Point(2, 2, 100.0)]
    assert scaled(slow, 8, 1).seconds == pytest.approx(13.0, rel=0.05)
    assert scaled(slow, 8, 2).seconds > 1.5 * scaled(slow, 8, 1).seconds
    # Nobody has tried them: so they are said with a wide interval.
    unknown, known = scaled(packed, 8, 2), scaled(slow, 8, 2)
    assert unknown.high_s / unknown.low_s > 2 * known.high_s / known.low_s


def test_gpus_that_gain_more_than_their_number_are_no_error() -> None:
    said = scaled([Point(1, 1, 100.0), Point(2, 1, 40.0)], 4, 1)
    assert 15.0 < said.seconds < 25.0


ASKED = Configuration(network="r", gpu_type="v100", gpus=4, recipe="r", batch_size=8, epochs=2)


def run(gpus: int, nodes: int = 1, **more: float) -> Trace:
    return Trace("r", "v100", gpus, 8, nodes=nodes, recipe="r", epochs=2, **more)  # type: ignore[arg-type]


def test_runs_of_a_recipe_on_other_numbers_of_gpus_are_scaled_before_anything_was_learnt() -> None:
    said = said_of(ASKED, Prediction(), [run(1, runtime_s=300.0), run(2, runtime_s=254.0)])
    assert said.runtime_s == pytest.approx(4 * 41, rel=0.1)
    assert said.basis == "runs of the recipe on 1, 2 GPU(s), scaled"
    assert said_of(ASKED, Prediction(), [run(1, runtime_s=300.0)]).learnt is not None


def test_what_was_learnt_of_all_counts_less_than_two_numbers_of_gpus_and_more_than_one() -> None:
    learnt = Prediction(runtime_s=7.0, basis="estimators v1")
    assert said_of(ASKED, learnt, [run(1, runtime_s=300.0)]).runtime_s == 7.0
    two = [run(1, runtime_s=300.0), run(2, runtime_s=254.0)]
    assert said_of(ASKED, learnt, two).runtime_s != 7.0
    repeat = run(4, runtime_s=100.0)
    assert said_of(ASKED, learnt, [*two, repeat]).runtime_s == pytest.approx(100.0)


def test_epochs_and_iterations_are_scaled_by_their_number() -> None:
    epochs = [run(1, epoch_s=150.0), run(2, epoch_s=127.0)]
    assert said_of(ASKED, Prediction(), epochs).runtime_s == pytest.approx(2 * 82, rel=0.1)
    asked = Configuration(
        network="r", gpu_type="v100", gpus=4, recipe="r", batch_size=8, epochs=2,
        dataset_samples=800,
    )  # fmt: skip
    # An iteration takes a batch on each GPU, so there are half as many on two.
    iterations = [run(1, iteration_s=1.5), run(2, iteration_s=2.54)]
    assert said_of(asked, Prediction(), iterations).runtime_s == pytest.approx(2 * 82, rel=0.1)


def test_nodes_without_gpus_are_scaled_as_gpus_of_a_node_each_are() -> None:
    asked = Configuration(
        network="r", gpu_type="cpu", gpus=1, nodes=4, recipe="r", batch_size=8, epochs=2, cpus=2.0
    )

    def on(nodes: int, seconds: float, cpus: float = 2.0) -> Trace:
        return Trace(
            "r", "cpu", 0, 8, nodes=nodes, recipe="r", epochs=2, cpus=cpus, runtime_s=seconds
        )

    said = said_of(asked, Prediction(), [on(1, 166.0), on(2, 143.0), on(3, 1.0, cpus=8.0)])
    assert said.runtime_s == pytest.approx(89.0, rel=0.15)
    assert said.basis == "runs of the recipe on 1, 2 node(s) without GPUs, scaled"
    assert said_of(asked, Prediction(), [on(4, 166.0)]).basis == "1 run(s) of the same job"


@pytest.mark.parametrize("nodes", [(1, 1), (2, 4)])
def test_what_more_gpus_make_no_faster_takes_one_gpu_some_time(nodes: tuple[int, int]) -> None:
    two, four = (Point(gpus, on, 100.0) for gpus, on in zip((2, 4), nodes, strict=True))
    one = scaled([two, four], 1, 1)
    assert 30.0 < one.seconds < 110.0
    assert one.low_s < one.seconds < one.high_s


@given(
    st.lists(
        st.builds(
            Point,
            st.sampled_from([8, 16, 64, 1024]),
            st.sampled_from([1, 2, 4, 8]),
            st.floats(1e-3, 3e9),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([(1, 1), (2, 1), (2, 2), (8, 1), (8, 8), (1024, 8)]),
)
def test_whatever_runs_took_an_interval_holds_a_time_above_zero(points, asked) -> None:
    found = scaled(points, *asked)
    assert 0.0 < found.low_s <= found.seconds <= found.high_s < math.inf


def test_a_number_that_nobody_tried_is_never_said_more_surely_than_one_that_somebody_did() -> None:
    tried = run(4, runtime_s=1000.0)

    def width(gpus: int, seen: Sequence[Trace]) -> float:
        said = said_of(replace(ASKED, gpus=gpus), Prediction(), seen)
        assert said.runtime_low_s
        assert said.runtime_high_s
        return said.runtime_high_s / said.runtime_low_s

    for seen in ([tried], [tried] * 10):
        assert width(1, seen) > width(8, seen) > width(4, seen)
    assert width(8, [tried] * 10) < width(8, [tried])
