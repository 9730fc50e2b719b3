"""Which options change how long a run lasts, and by how much."""

import math

import pytest

from headway.estimate.options import by_options, may_change_memory, numbers_of


def seconds(settings: dict[str, float]) -> float:
    return 3.0 + 20.0 * settings["--epochs"]


def told(wanted: dict[str, float], *runs: dict[str, float]):
    return by_options(wanted, [(each, math.log(seconds(each))) for each in runs])


def test_options_are_numbers_however_they_are_written_and_those_of_the_configuration():
    command = ["bash", "-c", "python t.py --lr=0.1 -n 4 trainer.max_epochs=20 --name x --inf 1e999"]
    config = {"model": {"depth": 8, "wide": True}, "lr": 0.2, "name": "y"}
    assert numbers_of(command, config) == {
        "--lr": 0.1, "--n": 4.0, "--trainer.max_epochs": 20.0, "--model.depth": 8.0,
    }  # fmt: skip


def test_numbers_that_stand_alone_are_settings_by_their_place():
    assert numbers_of(["python", "t.py", "--lr", "0.1", "data", "40", "-v", "3", "1e-3"]) == {
        "--lr": 0.1, "--v": 3.0, "--argument-1": 40.0, "--argument-2": 0.001,
    }  # fmt: skip
    assert numbers_of(["sh", "-c", "sleep 40; echo nan"]) == {}  # "40;" is a word of the shell
    again = by_options({"--argument-1": 100.0}, [({"--argument-1": 40.0}, math.log(20))])
    assert math.exp(again.log_value - again.half) < 20  # it may be no amount of work at all
    assert math.exp(again.log_value + again.half) > 45  # and it may be all of it


def test_a_second_run_is_scaled_by_what_the_names_of_its_options_say():
    found = told({"--epochs": 20, "--seed": 2}, {"--epochs": 5, "--seed": 1})
    assert math.exp(found.log_value) == pytest.approx(403, rel=0.25)
    assert found.words == "scales with epochs, not with seed"


def test_an_option_of_an_unknown_name_is_learnt_from_two_runs():
    runs = [({"--draws": n, "--seed": n}, math.log(n / 100)) for n in (1000.0, 2000.0)]
    found = by_options({"--draws": 4000, "--seed": 7}, runs)
    assert math.exp(found.log_value) == pytest.approx(40, rel=0.2)
    assert found.words == "scales with draws, not with seed"


def test_what_a_few_runs_cannot_tell_widens_the_interval():
    known = told({"--epochs": 20, "--seed": 2}, {"--epochs": 20, "--seed": 1})
    other = told({"--epochs": 20, "--width": 2}, {"--epochs": 20, "--width": 512})
    absent = told({"--epochs": 20, "--width": 2}, {"--epochs": 20})
    assert known.half < 0.4 < min(absent.half, other.half)
    counted = by_options({"--epochs": 20}, [({"--epochs": 5}, math.log(80))], {"epochs"})
    assert math.exp(counted.log_value) == pytest.approx(80)  # scaled already


def test_no_number_breaks_it():
    odd = {f"--o{n}": n * 1e30 for n in range(500)} | {"--seed": -1.0, "--epochs": 0.0}
    found = by_options(odd, [({"--epochs": 1e300, "--seed": 0.0}, math.log(0.01))])
    assert math.isfinite(found.log_value)
    assert math.isfinite(found.half)


def test_seeds_and_epochs_change_no_memory_and_a_batch_does():
    assert not may_change_memory({"--seed": 1, "--epochs": 2}, {"--seed": 2, "--epochs": 9})
    assert may_change_memory({"--batch-size": 32}, {"--batch-size": 64})


def test_a_value_of_yacs_stands_behind_its_name_and_not_alone() -> None:
    assert numbers_of(["t.py", "SOLVER.MAX_ITER", "900", "7"]) == {
        "--SOLVER.MAX_ITER": 900.0, "--argument-1": 7.0
    }  # fmt: skip
