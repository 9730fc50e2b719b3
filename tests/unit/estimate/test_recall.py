import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headway.estimate.features import Configuration, from_job
from headway.estimate.prior import demand_for
from headway.estimate.recall import of_any, said_of
from headway.model.array import member_job
from headway.model.job import TrainingJob
from headway.model.job_parts import Training
from headway.model.run import Prediction
from headway.model.trace import EPOCHS_DONE, LONGEST_S, Trace
from headway.units import GIB, MIB

JOB = TrainingJob.model_validate(
    {
        "name": "j",
        "image": "i:1",
        "command": ["python", "t.py", "--depth", "8"],
        "training": {"network": "net", "epochs": 10, "samples": 1000},
    }
)
ASKED = from_job(JOB, gpu_type="cpu")
REPEAT = Trace(
    network="net",
    gpu_type="cpu",
    gpus=0,
    batch_size=None,
    runtime_s=100.0,
    dataset_samples=1000,
    epochs=10,
    cpus=1.0,
    host_peak_bytes=100 * MIB,
    recipe="net",
    metrics={"--depth": 8.0},
)


def test_the_same_job_again_takes_as_long():
    said = said_of(ASKED, Prediction(), [REPEAT])
    assert said.runtime_s == pytest.approx(100)
    assert said.runtime_low_s < 80
    assert said.runtime_high_s > 130
    assert said.host_peak_bytes == 125 * MIB
    assert "1 run(s) of the same job" in said.basis


def test_more_repeats_narrow_the_interval():
    few = said_of(ASKED, Prediction(), [REPEAT])
    many = said_of(
        ASKED, Prediction(), [replace(REPEAT, runtime_s=95.0 + 7 * i % 11) for i in range(11)]
    )
    assert many.runtime_s == pytest.approx(100, rel=0.02)
    assert many.runtime_high_s - many.runtime_low_s < 0.5 * (few.runtime_high_s - few.runtime_low_s)


def test_a_poisoned_repeat_moves_neither_the_time_nor_the_memory():
    """A thousand times too much, as of an import in another unit."""
    wrong = replace(REPEAT, runtime_s=100_000.0, host_peak_bytes=100_000 * MIB)
    said = said_of(ASKED, Prediction(), [wrong, *[REPEAT] * 4])
    assert said.runtime_s == pytest.approx(100)
    assert said.host_peak_bytes < 125 * MIB
    larger = replace(REPEAT, host_peak_bytes=500 * MIB)  # a job whose need differs from run to run
    assert said_of(ASKED, Prediction(), [larger, *[REPEAT] * 4]).host_peak_bytes > 500 * MIB


def test_after_an_update_that_slows_all_down_four_runs_tell():
    runs = [
        replace(REPEAT, runtime_s=seconds, started_at=datetime(2026, 1, day + 1, tzinfo=UTC))
        for day, seconds in enumerate([100.0] * 20 + [120.0] * 4)
    ]
    said = [said_of(ASKED, Prediction(), each) for each in (runs[:20], runs[:22], runs[::-1])]
    assert [each.runtime_s for each in said] == pytest.approx([100, 100, 120])


def test_data_that_have_grown_a_little_make_no_other_job():
    learnt = Prediction(runtime_s=50.0, runtime_low_s=40.0, runtime_high_s=60.0, host_peak_bytes=7)
    grown = replace(ASKED, dataset_samples=1050)
    assert said_of(grown, learnt, [REPEAT]).runtime_s == pytest.approx(105)


def test_repeats_win_over_what_was_learnt_and_that_over_the_recipe():
    learnt = Prediction(runtime_s=50.0, runtime_low_s=40.0, runtime_high_s=60.0, host_peak_bytes=7)
    assert said_of(ASKED, learnt, [REPEAT]).runtime_s == pytest.approx(100)
    twice = replace(REPEAT, epochs=20)
    assert said_of(ASKED, learnt, [twice]) == learnt


def test_sessions_that_were_ended_soon_say_nothing_of_the_next_one():
    said = said_of(ASKED, Prediction(), [REPEAT] * 3, limit_s=28_800, is_session=True)
    assert (said.runtime_s, said.runtime_high_s) == (7_200, 28_800)
    assert said.basis == "prior: its time limit; a session lasts as long as it is used"


def test_another_size_of_the_recipe_is_scaled_by_its_work():
    said = said_of(ASKED, Prediction(), [replace(REPEAT, epochs=5, dataset_samples=500)])
    assert said.runtime_s == pytest.approx(400)
    assert said.runtime_high_s > 800
    assert said.host_peak_bytes is None


@pytest.mark.parametrize(
    "other",
    [
        {"exit": "oom"},
        {"runtime_s": None},
        {"gpus": 2},
        {"gpu_type": "v100"},
        {"batch_size": 64},
        {"cpus": 2.0},
    ],
)
def test_what_is_not_alike_says_nothing(other):
    said = said_of(ASKED, Prediction(), [replace(REPEAT, **other)])
    assert said.basis.startswith("prior")
    assert said.runtime_low_s < said.runtime_s < said.runtime_high_s


def test_the_prior_keeps_to_the_time_limit():
    said = said_of(ASKED, Prediction(), [], limit_s=1000.0)
    assert (said.runtime_s, said.runtime_high_s) == (250.0, 1000.0)


SHARED = JOB.model_copy(update={"resources": JOB.resources.model_copy(update={"gpus": 1})})
ON_GPU = from_job(SHARED, gpu_type="NVIDIA H200")
MEASURED = replace(REPEAT, gpu_type="NVIDIA H200", gpus=1, metrics={"gpu_utilisation_frac": 0.9})


def busy(*traces):
    return said_of(ON_GPU, Prediction(), traces).gpu_utilisation_frac


def test_utilisation_is_learnt_from_the_recipe_on_such_a_gpu():
    assert busy() is None
    assert busy(MEASURED) == pytest.approx(0.7)  # the prior of one half still counts as a trace
    assert busy(*[MEASURED] * 9) == pytest.approx(0.86)
    assert busy(replace(MEASURED, gpu_type="NVIDIA T4")) is None
    assert busy(replace(MEASURED, recipe="other")) is None
    assert busy(replace(MEASURED, exit="oom")) is None


def test_the_same_batch_size_tells_most():
    other = replace(MEASURED, batch_size=8, metrics={"gpu_utilisation_frac": 0.1})
    assert busy(other) == pytest.approx(0.3)
    assert busy(other, MEASURED) == pytest.approx(0.7)


def test_an_idle_recipe_still_holds_something():
    assert busy(*[replace(MEASURED, metrics={"gpu_utilisation_frac": 0.0})] * 50) == 0.05


def test_a_repeat_on_a_gpu_is_known_by_its_product_name():
    assert said_of(
        ON_GPU, Prediction(), [replace(REPEAT, gpu_type="NVIDIA H200", gpus=1)]
    ).basis == ("1 run(s) of the same job")


def test_what_was_not_enough_is_a_bound_and_no_peak():
    """Of the same job or a smaller one; a run of more data says nothing of one of less."""
    known = Configuration(recipe="r", gpu_type="a100", batch_size=8, dataset_bytes=4 * GIB)
    common = {"gpus": 1, "batch_size": 8, "recipe": "r", "exit": "oom"}
    traces = [
        Trace("r", "a100", dataset_bytes=2 * GIB, host_peak_bytes=6 * GIB, **common),
        Trace("r", "t4", dataset_bytes=4 * GIB, gpu_peak_bytes=15 * GIB, **common),
        Trace("r", "a100", dataset_bytes=9 * GIB, host_peak_bytes=99 * GIB, **common),
        Trace("r", "a100", dataset_bytes=4 * GIB, gpu_peak_bytes=70 * GIB,
              **common | {"batch_size": 64}),
    ]  # fmt: skip
    said = said_of(known, Prediction(), traces)
    assert (said.host_above_bytes, said.gpu_above_bytes) == (6 * GIB, 15 * GIB)
    assert said.host_peak_bytes is said.gpu_peak_bytes is None
    assert said.basis.startswith("prior")
    learnt = Prediction(runtime_s=60.0, host_peak_bytes=5 * GIB, gpu_peak_bytes=30 * GIB)
    raised = said_of(known, learnt, traces)
    assert raised.host_peak_bytes == math.ceil(6 * GIB * 1.15)
    assert raised.gpu_peak_bytes == 30 * GIB
    job = TrainingJob.model_validate({"name": "t", "image": "i:1", "command": ["x"]})
    assert demand_for(job, raised).host_memory_bytes == math.ceil(6 * GIB * 1.15)


def test_a_run_that_was_cut_short_tells_what_it_held_of_a_gpu():
    """Of the same job on this site: elsewhere it may have failed before its first batch."""
    cut = replace(
        REPEAT, runtime_s=None, host_peak_bytes=None, exit="failed", gpu_peak_bytes=4 * GIB
    )
    said = said_of(ON_GPU, Prediction(), [replace(cut, gpu_peak_bytes=3 * GIB), cut])
    assert (said.gpu_held_bytes, said.gpu_peak_bytes) == (4 * GIB, None)
    assert said.basis.startswith("prior")
    others = [{"source": "lab"}, {"batch_size": 64}, {"metrics": {"--depth": 9.0}}, {"recipe": "x"}]
    for other in others:
        assert said_of(ON_GPU, Prediction(), [replace(cut, **other)]).gpu_held_bytes is None


def test_before_the_gpu_is_known_the_slowest_known_one_and_the_most_memory_count():
    fast = Prediction(60.0, 50.0, 70.0, gpu_peak_bytes=9 * GIB, gpu_type="a", basis="traces")
    slow = Prediction(600.0, 500.0, 700.0, gpu_peak_bytes=8 * GIB, gpu_type="b", basis="traces")
    unknown = Prediction(3600.0, 60.0, 86400.0, host_above_bytes=GIB, gpu_type="c")
    found = of_any([fast, slow, unknown])
    assert (found.gpu_type, found.runtime_s) == ("b", 600.0)
    assert (found.gpu_peak_bytes, found.host_above_bytes) == (9 * GIB, GIB)
    assert of_any([unknown]) == unknown


def test_members_of_an_array_teach_the_next_ones():
    """A parameter of an array in the command is an option that no run before it had."""
    job = {**JOB.document(), "command": ["python", "t.py", "--lr", "{lr}"]}
    members = [
        from_job(TrainingJob.model_validate(member_job(job, {"lr": lr})), gpu_type="cpu")
        for lr in (0.1, 0.01, 0.001)
    ]
    assert len({each.recipe for each in members}) == 1
    first, second, third = members
    ended = [replace(REPEAT, metrics=dict(each.settings)) for each in (first, second)]
    alone, two = (said_of(third, Prediction(), ended[:number]) for number in (1, 2))
    assert alone.learnt_runtime_s == pytest.approx(100)
    assert alone.runtime_high_s > 200  # an option may make it another job
    assert two.runtime_high_s < alone.runtime_high_s
    assert 125 * MIB <= alone.host_peak_bytes < 250 * MIB  # not ten times the data
    repeat = said_of(first, Prediction(), ended)
    assert repeat.basis == "1 run(s) of the same job"


def test_nothing_is_said_to_last_beyond_the_end_of_all_dates():
    """A short try with one epoch, then the real thing with a million and early stopping."""
    tried = replace(REPEAT, epochs=1, runtime_s=60.0)
    asked = replace(ASKED, epochs=10**6)
    said = said_of(asked, Prediction(), [tried])
    assert said.runtime_s == pytest.approx(60.0 * 10**6)
    assert said.runtime_low_s < said.runtime_s < said.runtime_high_s == LONGEST_S
    most = said_of(replace(asked, epochs=10**12, dataset_samples=10**12), Prediction(), [tried])
    assert most.runtime_s == most.runtime_high_s == LONGEST_S


def test_what_is_learnt_sets_no_limit_below_what_the_job_was_seen_to_take():
    for learnt_bytes, said_bytes in ((7, 100 * MIB), (110 * MIB, 110 * MIB)):
        learnt = Prediction(runtime_s=50.0, host_peak_bytes=learnt_bytes)
        assert said_of(ASKED, learnt, [REPEAT]).host_peak_bytes == said_bytes


def test_epochs_that_a_run_names_are_compared_with_those_that_others_had_by_themselves() -> None:
    """A hundred epochs were to take as long as the eight that the program does by itself."""
    asked = from_job(
        JOB.model_copy(update={"command": ["t.py", "--epochs", "100"], "training": Training()}),
        gpu_type="cpu",
    )
    other = replace(REPEAT, epochs=None, dataset_samples=None, recipe=asked.recipe, metrics={})
    known = said_of(asked, Prediction(), [replace(other, metrics={EPOCHS_DONE: 8.0})])
    assert known.runtime_low_s < 1250 < known.runtime_high_s
    assert known.runtime_s == pytest.approx(1250, rel=0.3)
    unknown = said_of(asked, Prediction(), [other])
    assert unknown.runtime_high_s > 5 * 100 > 25 * unknown.runtime_low_s
