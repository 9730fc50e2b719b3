"""What is asked of MLflow's server, and which of its answers are final."""

import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import anyio
import httpx
import pytest
from pydantic import SecretStr, ValidationError

from headway.leader.mlflow import HeadwayMlflow, MlflowRefused, write
from headway.units import MIB
from headway.views.tracked_run import TrackedRun
from tests.unit.views.test_documents import NOON

RUN = TrackedRun("n", "e", "FINISHED", NOON, NOON, {"headway.run_id": "r"}, {"headway.cost": 1.0})
Answer = Callable[[httpx.Request], httpx.Response]


class Sent(httpx.AsyncByteStream):
    """A body as it comes over the network: not read yet."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for each in self.pieces:
            yield each


def _written(answer: Answer, **block: object) -> None:
    def sent(request: httpx.Request) -> httpx.Response:
        found = answer(request)
        if isinstance(found.stream, Sent):
            return found
        return httpx.Response(
            found.status_code, headers=found.headers, stream=Sent([found.content]),
            extensions=found.extensions,
        )  # fmt: skip

    async def ask() -> None:
        block_of_it = HeadwayMlflow(url="http://mlflow:5000/", **block)
        async with block_of_it.client(httpx.MockTransport(sent)) as server:
            await write(server, RUN)

    anyio.run(ask)


class Mlflow:
    """A server: what it was asked last by each path, and which runs it finds by which filter."""

    def __init__(self, tagged: list[str], own: list[str]) -> None:
        self.tagged, self.own = tagged, own
        self.asked: list[tuple[str, dict[str, object], str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/2.0/mlflow/")
        told = json.loads(request.content or "{}")
        self.asked.append((path, told, request.headers.get("Authorization", "")))
        if path == "experiments/get-by-name":
            return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST"})
        made = {"experiment_id": "7", "run": {"info": {"run_id": "made"}}}
        found = self.own if "AND" in str(told.get("filter")) else self.tagged
        runs = [{"info": {"run_id": each}} for each in found]
        return httpx.Response(
            200, json={**made, "runs": runs, "experiments": [{"experiment_id": "0"}]}
        )

    def told(self, path: str) -> list[dict[str, object]]:
        """With what it was asked for *path*."""
        return [told for at, told, _ in self.asked if at == path]


@pytest.mark.parametrize(
    ("user", "sent"), [("", "Bearer s3cr3t"), ("ada", "Basic YWRhOnMzY3IzdA==")]
)
def test_its_secret_goes_to_the_server_alone(user: str, sent: str) -> None:
    server = Mlflow([], [])
    _written(server, user=user, secret=SecretStr(" s3cr3t\n"))
    assert {authorised for _, _, authorised in server.asked} == {sent}
    assert "s3cr3t" not in repr(
        HeadwayMlflow(url="http://m", user=user, secret=SecretStr("s3cr3t"))
    )


@pytest.mark.parametrize("secret", ["s3c\0r3t", "s3c\r\nr3t", "s3cr3t\x7f", "s3cr3té"])
def test_a_secret_that_no_header_can_have_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ValidationError, match="printable ASCII") as refused:
        HeadwayMlflow(url="http://m", secret=secret)
    assert "r3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "final"),
    [
        (httpx.Response(400, json={"error_code": "INVALID", "message": "a tag is too long"}), True),
        (httpx.Response(400, json={"error_code": "RESOURCE_ALREADY_EXISTS"}), False),
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


def test_errors_of_the_server_are_one_line_of_printable_characters() -> None:
    told = {"message": "a\0b\ud800\nforged line", "error_code": "INVALID"}
    body = httpx.Response(
        400, content=json.dumps(told), extensions={"reason_phrase": b"Bad\x1b[2J"}
    )
    with pytest.raises(MlflowRefused) as refused:
        _written(lambda _: body)
    assert str(refused.value).isprintable()
    assert "forged line" in str(refused.value)


def test_an_answer_is_neither_unpacked_nor_read_without_end() -> None:
    read = []

    def pieces() -> Iterator[bytes]:
        for at in range(1000):
            read.append(at)
            yield b" " * MIB

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return httpx.Response(200, stream=Sent(pieces()))

    with pytest.raises(httpx.HTTPStatusError, match=r"^200 with more than 8 MiB$"):
        _written(answer)
    assert len(read) == 9
    packed = gzip.compress(b'{"experiments": []}')
    headers = {"Content-Encoding": "gzip"}
    with pytest.raises(httpx.HTTPStatusError, match=r"^200 "):
        _written(lambda _: httpx.Response(200, stream=Sent([packed]), headers=headers))


def test_its_own_run_is_begun_and_ended_beside_those_that_have_the_tag() -> None:
    server = Mlflow(["theirs"], [])
    _written(server)
    assert server.told("experiments/create") == [{"name": "e"}]
    (created,) = server.told("runs/create")
    assert created["experiment_id"] == "7"
    assert [each["run_id"] for each in server.told("runs/log-batch")] == ["made", "theirs"]
    ended = [(each["run_id"], each["status"]) for each in server.told("runs/update")]
    assert ended == [("made", "FINISHED")]


def test_its_own_run_is_looked_for_in_its_experiment_alone() -> None:
    server = Mlflow(["ours", "theirs"], ["ours"])
    _written(server)
    assert server.told("runs/create") == []
    where = [each["experiment_ids"] for each in server.told("runs/search")]
    assert where == [["7"], ["0"]]
    assert [each["run_id"] for each in server.told("runs/log-batch")] == ["ours", "theirs"]
    assert [each["run_id"] for each in server.told("runs/update")] == ["ours"]


@pytest.mark.parametrize("url", ["ftp://m", "http://a:b@m", "m", "http://"])
def test_an_address_without_secrets_is_asked_for(url: str) -> None:
    with pytest.raises(ValidationError):
        HeadwayMlflow(url=url)
