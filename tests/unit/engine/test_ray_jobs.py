"""What Ray answers, and what is made of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.clock import SystemClock
from headway.engine.errors import EngineAway
from headway.engine.kinds import opened
from headway.engine.place import Place
from headway.engine.port import Request
from headway.engine.ray_jobs import RayEngine
from headway.errors import InvalidInput

REQUEST = Request("r-1", "r-1", "ray", ("true",), 1, 1)
Asked = list[tuple[str, str]]


@pytest.fixture
def asked() -> Asked:
    return []


@pytest.fixture
def answers(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """By method: status and body of what Ray answers."""

    def answer(**by_method: tuple[int, Any]) -> None:
        def request(method: str, url: str, **options: Any) -> httpx.Response:
            assert options["trust_env"] is False
            asked.append((method, url))
            status, body = by_method[method]
            return httpx.Response(status, text=body if isinstance(body, str) else json.dumps(body))

        monkeypatch.setattr(httpx, "request", request)

    return answer


@pytest.fixture
def engine(tmp_path: Path) -> RayEngine:
    return RayEngine(Place(tmp_path), "s", SystemClock(), address="http://head:8265")


def test_a_job_that_ray_keeps_is_not_forgotten(
    engine: RayEngine, answers: Callable[..., None], tmp_path: Path
) -> None:
    answers(POST=(200, {}), DELETE=(500, "not in a terminal state"))
    engine.submit(REQUEST)
    with pytest.raises(EngineAway, match="terminal"):
        engine.forget("r-1")
    assert (tmp_path / "r-1").exists()
    answers(DELETE=(404, "none"))
    engine.forget("r-1")
    assert not (tmp_path / "r-1").exists()


def test_one_of_that_name_that_has_ended_is_not_taken_for_it(
    engine: RayEngine, answers: Callable[..., None], asked: Asked
) -> None:
    there = (500, "headway-s-r-1 already exists")
    ended = {"submission_id": "headway-s-r-1", "status": "FAILED"}
    answers(POST=there, GET=(200, ended), DELETE=(200, {}))
    with pytest.raises(EngineAway, match="had ended"):
        engine._submit(REQUEST, Path("job.sh"), {})
    assert asked[-1] == ("DELETE", "http://head:8265/api/jobs/headway-s-r-1")
    answers(POST=there, GET=(200, ended | {"status": "PENDING"}))
    assert engine._submit(REQUEST, Path("job.sh"), {}) == "headway-s-r-1"


def test_only_jobs_that_have_the_name_of_their_key_are_believed(
    engine: RayEngine, answers: Callable[..., None]
) -> None:
    def job(key: object, name: str) -> dict[str, object]:
        said = {"headway": "s", "key": key}
        return {"submission_id": name, "status": "PENDING", "metadata": said}

    jobs = [
        job("r-1", "headway-s-r-1"),
        job("r-2", "mine"),
        job("../r", "headway-s-../r"),
        job(None, "headway-s-None"),
        job(["r"], "headway-s-['r']"),
    ]
    answers(GET=(200, jobs))
    assert list(engine._queue()) == ["r-1"]


@pytest.mark.parametrize("said", ["<html>", [1], [{"metadata": {"headway": "s"}}, 3], 7])
def test_an_answer_that_is_not_understood_is_none(
    engine: RayEngine, answers: Callable[..., None], said: object
) -> None:
    answers(GET=(200, said))
    for ask in (engine.jobs, engine.inspect):
        with pytest.raises(EngineAway, match="not understood"):
            ask()


@pytest.mark.parametrize("also", ["http://me:word@head:1", "http://h?a=b", "http://h#a", ""])
def test_an_address_has_no_other_parts(tmp_path: Path, also: str) -> None:
    with pytest.raises(InvalidInput, match="address") as raised:
        RayEngine(Place(tmp_path), "s", SystemClock(), address=also)
    assert "word" not in str(raised.value).replace("password", "")


def test_an_address_that_nobody_gave_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="address"):
        opened("ray", Place(tmp_path), "s", SystemClock(), [])
