"""Which runs say how long another one lasts."""

from headway.estimate.usual import Kind, Lasted, Usual, kind_of

JOB = {"name": "notes", "image": "python:3.11", "max_runtime": "28800s"}


def test_a_session_is_not_told_by_runs_that_are_none() -> None:
    run, session = kind_of(JOB, "ada", "team"), kind_of({**JOB, "session": {}}, "ada", "team")
    assert session == kind_of({**JOB, "ports": [12345]}, "ada", "team")
    usual = Usual([Lasted(run, 2.0)] * 20)
    assert usual.of(run) is not None
    assert usual.of(session) is None


def test_sessions_tell_of_each_other_and_of_no_other_runs() -> None:
    session = kind_of({**JOB, "session": {"idle": "1800s"}}, "ada", "team")
    other = Kind(recipe="else", owner="ada", image="python:3.11", gpus=0)
    usual = Usual([Lasted(session, 3600.0)] * 5)
    found = usual.of(session)
    assert found is not None
    assert 1800 < found[0].median_s < 7200
    assert usual.of(other) is None
    assert Usual([Lasted(session, 8.0)] * 2).of(session) is None  # looked at, and ended
    assert Usual([Lasted(session, 8.0)] * 2, of_recipe=True).of(session) is None


def test_people_are_told_by_runs_of_the_recipe_alone() -> None:
    """The queue has to go by something; who asks how long it takes is not told a guess."""
    run = kind_of(JOB, "ada", "team")
    other = kind_of(JOB | {"name": "another"}, "ada", "team")
    assert Usual([Lasted(run, 60.0)]).of(other) is not None
    told = Usual([Lasted(run, 60.0)], of_recipe=True)
    assert told.of(other) is None
    assert told.of(run) is not None
