"""Which port a session has, and which it names."""

import pytest

from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.number_range import NumberRange
from headway.model.session import needs_free_port, open_ports, serves_port, session_port
from headway.policy.narrowing import refused_port


def job(**more: object) -> TrainingJob:
    return TrainingJob(name="notes", image="python:3.11", command=["serve"], **more)


def test_a_session_without_a_port_gets_a_free_one() -> None:
    asked = job(ports=[6006], session={})
    document = asked.document()
    assert needs_free_port(document)
    assert asked.named_ports == (6006,)
    assert session_port(document, (6006, 20_000)) == 20_000
    assert open_ports(document, (6006, 20_000)) == {6006, 20_000}


def test_a_session_has_the_port_that_it_names() -> None:
    asked = job(ports=[6006], session={"port": 8080})
    document = asked.document()
    assert not needs_free_port(document)
    assert asked.named_ports == (6006, 8080)
    assert session_port(document, (6006, 8080)) == 8080
    assert session_port(document, ()) is None
    assert open_ports(document, (6006, 8080)) == {6006, 8080}


def test_a_shell_has_none() -> None:
    asked = job(session={"shell": True})
    document = asked.document()
    assert not serves_port(document)
    assert not needs_free_port(document)
    assert (asked.named_ports, session_port(document, (20_000,))) == ((), None)


def test_a_session_of_an_older_ledger_names_no_port() -> None:
    assert session_port({"session": {"idle": None}}, (20_000,)) == 20_000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"session": {"port": 80}}, "session.port: got 80"),
        ({"session": {"port": True}}, "session.port: got True"),
        ({"session": {"port": 8080, "shell": True}}, "since shell is given"),
        ({"session": {"port": 8080}, "ports": [8080]}, "given once"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        job(**given)


def test_the_ports_of_teams_bind_sessions_too() -> None:
    ranges = {"speech": NumberRange(8000, 8999)}
    assert refused_port(job(session={"port": 8080}).named_ports, "vision", ranges) is not None
