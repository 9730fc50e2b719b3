"""What is said of a job rests on the jobs that had ended by then, and on nothing else."""

from headway.estimate.prior import UTILISATION_PRIOR
from headway.replay.history import History
from headway.replay.trace_jobs import Estimates
from tests.unit.replay.traces import job, run


def test_the_recipe_speaks_where_it_has_run() -> None:
    history = History(Estimates.LEARNED)
    asked = job("new", 0, 1e5, recipe="vgg", limit_s=1e6, gpu_util_frac=0.1)
    assert history.told(asked) == (2.5e5, 1e6, UTILISATION_PRIOR)
    for _ in range(5):
        history.ended(job("old", 0, 600, recipe="vgg", gpu_util_frac=0.1), 700.0)
        history.ended(job("other", 0, 9000, recipe="bert", gpu_util_frac=0.9), 9000.0)
    told = history.told(asked)
    assert 690 < told.median_s < 710
    assert told.high_s < 1000
    assert told.gpu_util_frac < 0.2


def test_without_a_recipe_those_of_its_size_and_limit_speak() -> None:
    history = History(Estimates.LEARNED)
    for _ in range(5):
        history.ended(job("short", 0, 60, limit_s=900.0), 60.0)
        history.ended(job("long", 0, 9000, limit_s=86_400.0), 9000.0)
    assert 50 < history.told(job("new", 0, 1, limit_s=900.0)).median_s < 70
    assert 8000 < history.told(job("new", 0, 1, limit_s=86_400.0)).median_s < 10_000


def test_a_replay_starts_cold_and_never_knows_what_is_to_come() -> None:
    rows = [job(f"j{at}", 1000.0 * at, 100, recipe="r", limit_s=4000.0) for at in range(4)]
    told = [one.ask.median_s for one in run(rows, estimates="learned").jobs]
    assert told[0] == 1000.0
    assert told[1:] == [told[1]] * 3
    assert 99 < told[1] < 101
