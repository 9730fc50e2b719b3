"""What is asked of MLflow's server, and which of its answers are final."""

import json
from collections.abc import Callable

import anyio
import httpx
import pytest
from pydantic import SecretStr, ValidationError

from headway.leader.mlflow import HeadwayMlflow, MlflowRefused, write
from headway.views.tracked_run import TrackedRun
from tests.unit.views.test_documents import NOON

RUN = TrackedRun("n", "e", "FINISHED", NOON, NOON, {"headway.run_id": "r"}, {"headway.cost": 1.0})
Answer = Callable[[httpx.Request], httpx.Response]


def _written(answer: Answer, **block: object) -> None:
    async def ask() -> None:
        client = HeadwayMlflow(url="http://mlflow:5000/", **block).client()
        async with client, httpx.AsyncClient(
            base_url=client.base_url, auth=client.auth, headers=client.headers,
            transport=httpx.MockTransport(answer),
        ) as server:  # fmt: skip
            await write(server, RUN)

    anyio.run(ask)


@pytest.mark.parametrize(
    ("user", "sent"), [("", "Bearer s3cr3t"), ("ada", "Basic YWRhOnMzY3IzdA==")]
)
def test_its_secret_goes_to_the_server_alone(user: str, sent: str) -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, request.headers["Authorization"]))
        run = {"info": {"run_id": "theirs"}, "data": {}}
        found = {"experiments": [{"experiment_id": "0"}], "runs": [run]}
        return httpx.Response(200, json=found)

    _written(answer, user=user, secret=SecretStr("s3cr3t"))
    asked = ("experiments/search", "runs/search", "runs/log-batch")
    assert seen == [(f"/api/2.0/mlflow/{path}", sent) for path in asked]
    assert "s3cr3t" not in repr(
        HeadwayMlflow(url="http://m", user=user, secret=SecretStr("s3cr3t"))
    )


@pytest.mark.parametrize(
    ("answer", "final"),
    [
        (httpx.Response(400, json={"error_code": "INVALID", "message": "a tag is too long"}), True),
        (httpx.Response(401, text="no"), False),
        (httpx.Response(404, text="<html>"), False),
        (httpx.Response(200, text="<html>"), False),
        (httpx.Response(503, json={"message": "later"}), False),
        (httpx.Response(302, headers={"Location": "http://elsewhere/"}), False),
    ],
)
def test_what_may_pass_is_no_refusal(answer: httpx.Response, final: bool) -> None:
    hosts = set()

    def given(request: httpx.Request) -> httpx.Response:
        hosts.add(request.url.host)
        return answer

    with pytest.raises(MlflowRefused if final else httpx.HTTPStatusError, match=r"^[0-9]{3} "):
        _written(given)
    assert hosts == {"mlflow"}


def test_its_own_run_is_ended_as_the_run_was() -> None:
    asked: dict[str, dict[str, object]] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/2.0/mlflow/")
        asked[path] = json.loads(request.content or "{}")
        if path == "experiments/get-by-name":
            return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST"})
        made = {"experiment_id": "7", "run": {"info": {"run_id": "ours"}}}
        return httpx.Response(200, json=made)

    _written(answer)
    assert asked["experiments/create"] == {"name": "e"}
    assert asked["runs/create"]["experiment_id"] == "7"
    assert asked["runs/update"]["status"] == "FINISHED"


@pytest.mark.parametrize("url", ["ftp://m", "http://a:b@m", "m", "http://"])
def test_an_address_without_secrets_is_asked_for(url: str) -> None:
    with pytest.raises(ValidationError):
        HeadwayMlflow(url=url)
