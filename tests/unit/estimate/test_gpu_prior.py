"""GPU memory of what nothing like has run of, against published measurements."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from headway.estimate.features import Configuration
from headway.estimate.gpu_prior import GpuMemoryGuess, gpu_memory_guess
from headway.estimate.physics import shipped
from headway.estimate.prior import demand_for
from headway.model.job import TrainingJob
from headway.model.lease import Basis, Sharing
from headway.model.run import Prediction
from headway.units import GIB

MEASURED = Path(__file__).parents[2] / "data" / "gpu-memory-published.csv"
ASKED = Configuration(network="resnet50", gpu_type="v100", batch_size=32, framework="pytorch")


def guess(asked: Configuration) -> GpuMemoryGuess:
    found = gpu_memory_guess(asked, shipped())
    assert found is not None
    return found


def test_it_holds_what_was_measured_of_real_networks() -> None:
    rows = [row for row in csv.DictReader(MEASURED.read_text().splitlines()) if not row["side"]]
    errors = []
    for row in rows:
        said = guess(replace(ASKED, network=row["network"], batch_size=int(row["batch_size"])))
        measured = int(row["measured_bytes"])
        assert measured <= said.upper_bytes, row
        errors.append(abs(said.median_bytes / measured - 1))
    assert sorted(errors)[len(errors) // 2] < 0.3


def test_the_interval_is_in_order_and_half_precision_takes_less() -> None:
    said = guess(ASKED)
    assert said.low_bytes < said.median_bytes < said.high_bytes < said.upper_bytes
    assert guess(replace(ASKED, precision="amp")).median_bytes < said.median_bytes
    assert guess(replace(ASKED, batch_size=64)).median_bytes > said.median_bytes


def test_larger_images_count_and_smaller_ones_do_not_make_it_less() -> None:
    larger = guess(replace(ASKED, settings={"--img_size": 448.0}))
    activations = 32 * 11.11e6 * 12.0
    assert larger.median_bytes - guess(ASKED).median_bytes == pytest.approx(3 * activations)
    assert guess(replace(ASKED, settings={"--image-size": 32.0})) == guess(ASKED)


@pytest.mark.parametrize(
    "unknown",
    [
        {"network": "my-own-net"},
        {"batch_size": None},
        {"gpu_type": "cpu"},
        {"framework": ""},
        {"framework": "tensorflow"},  # takes all of a GPU
        {"network": "bert-base"},  # for how many tokens?
    ],
)
def test_it_says_nothing_of_what_it_does_not_know(unknown: dict[str, object]) -> None:
    assert gpu_memory_guess(replace(ASKED, **unknown), shipped()) is None  # type: ignore[arg-type]


def test_of_text_it_needs_the_length_of_a_sample() -> None:
    text = replace(ASKED, network="bert-base", settings={"--max_seq_length": 128.0})
    said = guess(text)
    longer = guess(replace(text, settings={"--max_seq_length": 512.0}))
    assert math.log(longer.median_bytes / said.median_bytes) > 0.1


def test_a_first_run_is_given_the_guess_instead_of_a_whole_gpu() -> None:
    job = TrainingJob(
        name="t", image="i:1", command=["true"], resources={"gpus": 1, "cpus": 1},  # type: ignore[arg-type]
    )  # fmt: skip
    alone = demand_for(job, Prediction())
    assert (alone.sharing, alone.gpu_memory_bytes) == (Sharing.WHOLE, 0)
    shared = demand_for(job, Prediction(), gpu_guess_bytes=9 * GIB)
    assert (shared.gpu_memory_bytes, shared.gpu_memory_basis) == (9 * GIB, Basis.PRIOR)
    assert shared.sharing is job.resources.sharing
    tried = demand_for(job, Prediction(gpu_held_bytes=4 * GIB), gpu_guess_bytes=9 * GIB)
    assert (tried.gpu_memory_bytes, tried.gpu_memory_basis) == (6 * GIB, Basis.PRIOR)
    learnt = demand_for(job, Prediction(gpu_peak_bytes=4 * GIB), gpu_guess_bytes=9 * GIB)
    assert learnt.gpu_memory_bytes == 4 * GIB
    ran_out = demand_for(job, Prediction(gpu_above_bytes=16 * GIB), gpu_guess_bytes=9 * GIB)
    assert ran_out.gpu_memory_bytes > 16 * GIB
