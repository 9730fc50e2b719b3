"""Code as it comes to the gateway: nothing that a client says of it is believed."""

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from headway.client import Client
from headway.credentials import Address
from headway.errors import GatewayRefused, GatewayUnreachable, InvalidInput
from headway.model.access import Scope
from headway.model.code import CODE, CodeManifest
from headway.model.code_frames import joined
from headway.model.node import Capacity, Node
from headway.model.sent_files import SentFile
from headway.site import Site
from headway.units import GIB
from tests.integration.test_gateway import JOB, FakePrefect
from tests.support.api import MEMBER, bearer, serving, site_in

CANARY = b"canary: the code of team vision"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def frames(*chunks: bytes) -> bytes:
    return b"".join(joined(chunks))


OURS = CodeManifest.of([SentFile("train.py", len(CANARY), (sha256(CANARY),))])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = site_in(tmp_path)
    node = Node("left", "gpu", Capacity(8.0, 64 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="t")
    yield made
    made.ledger.close()


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serving(site, FakePrefect()) as address:
        yield address


def asking(url: str, headers: dict[str, str]) -> httpx.Client:
    return httpx.Client(base_url=f"{url}/v1", headers=headers)


@pytest.fixture
def ada(site: Site, url: str) -> Iterator[httpx.Client]:
    with asking(url, bearer(site, "ada", "vision", MEMBER)) as opened:
        assert opened.post("/code/chunks", content=frames(CANARY)).json() == {"new": 1}
        assert opened.post("/code", content=OURS.text).json()["missing"] == []
        yield opened


@pytest.fixture
def bob(site: Site, url: str) -> Iterator[httpx.Client]:
    with asking(url, bearer(site, "bob", "speech", MEMBER)) as opened:
        yield opened


def test_a_hash_of_another_team_opens_nothing(ada, bob, site) -> None:
    assert bob.post("/code", content=OURS.text).json()["missing"] == [sha256(CANARY)]
    refused = bob.post("/runs", json={"job": JOB | {"code": OURS.content_id}})
    assert refused.status_code == 422
    assert "team speech has sent no such folder" in refused.text
    for path in ("/code", "/code/chunks"):
        stolen = bob.post(path, params={"team": "vision"}, content=OURS.text)
        assert stolen.status_code == 403, stolen.text
        assert bob.get(path).status_code in (403, 404, 405)
    other = CodeManifest.of([SentFile("x", len(CANARY), (sha256(CANARY),))])
    assert ada.post("/code", content=other.text).json()["missing"] == []
    assert site.ledger.code.teams() == ["vision"]


def test_content_is_kept_under_its_own_hash_whatever_was_promised(ada, site) -> None:
    promised = sha256(b"what was promised")
    claimed = CodeManifest.of([SentFile("train.py", 17, (promised,))])
    assert ada.post("/code/chunks", content=frames(b"something else...")).json() == {"new": 1}
    assert ada.post("/code", content=claimed.text).json()["missing"] == [promised]
    refused = ada.post("/runs", json={"job": JOB | {"code": claimed.content_id}})
    assert refused.status_code == 422
    assert site.ledger.code.chunks("vision", [promised]) == {}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/code", b"\x1f\x8b\x08 a packed one"),
        ("/code", OURS.text.replace(b"train.py", b"../../ca")),
        ("/code", b"x" * (5 << 20)),
        ("/code/chunks", b"\xff\xff\xff\xff"),
        ("/code/chunks", (CODE.chunk_bytes + 1).to_bytes(4) + b"x" * (CODE.chunk_bytes + 1)),
        ("/code/chunks", 3 * frames(b"x" * (CODE.chunk_bytes - 4))),
    ],
)
def test_what_is_no_code_is_refused_in_one_line(ada, path: str, body: bytes) -> None:
    answer = ada.post(path, content=body)
    assert answer.status_code == 422
    assert "\n" not in answer.json()["detail"]


def test_a_job_names_only_what_was_sent_whole(ada) -> None:
    for job, field in (({"workdir": "."}, "workdir"), ({"code": "0" * 64}, "code")):
        refused = ada.post("/runs", json={"job": JOB | job})
        assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert ada.post("/rehearsals", json={"job": JOB | {"workdir": "."}}).status_code == 200
    assert ada.post("/runs", json={"job": JOB | {"code": OURS.content_id}}).status_code == 200


def test_a_token_that_only_watches_sends_nothing(site, url) -> None:
    with asking(url, bearer(site, "eve", "vision", {Scope.WATCH})) as eve:
        assert eve.post("/code", content=OURS.text).status_code == 403


def client(site: Site, url: str, user: str = "ada", team: str = "vision") -> Client:
    token = bearer(site, user, team, MEMBER)["Authorization"].removeprefix("Bearer ")
    return Client(Address(url, token))


def test_the_client_sends_what_is_missing_and_a_changed_line_is_one_part(
    site: Site, url: str, tmp_path: Path
) -> None:
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    for number in range(300):
        (place / "src" / f"{number}.py").write_text(f"x = {number}\n")
    (place / "big").write_bytes(os.urandom(3 * CODE.chunk_bytes))
    with client(site, url) as ours:
        told: list[tuple[int, int]] = []
        first = ours.send_code(place, sent=lambda *seen: told.append(seen))
        whole = 3 * CODE.chunk_bytes + sum(len(f"x = {number}\n") for number in range(300))
        assert told[-1] == (whole, whole)
        told.clear()
        assert ours.send_code(place, sent=lambda *seen: told.append(seen)) == first
        assert told == []
        (place / "src" / "7.py").write_text("x = 7000\n")
        second = ours.send_code(place, sent=lambda *seen: told.append(seen))
        assert told == [(9, 9)]
        job = {**JOB, "workdir": str(place)}
        assert ours.submit(job)["run_id"]
        with pytest.raises(GatewayRefused):
            ours.send_code(place, team="speech")
    assert first != second
    assert {each.code_id for each in site.ledger.code.kept("vision")} == {first, second}


def test_what_does_not_arrive_is_no_code(site: Site, url: str, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("x")
    monkeypatch.setattr(type(site.ledger.code), "put", lambda *_, **__: 0)
    with client(site, url) as ours, pytest.raises(GatewayUnreachable, match="did not arrive"):
        ours.send_code(tmp_path / "project")


def test_where_a_team_has_no_more_room_what_is_unused_goes(
    site: Site, url: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("headway.gateway.uploads.TEAM_BYTES", 100)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("x" * 200)
    with client(site, url) as ours, pytest.raises(InvalidInput, match="may take 100 B"):
        ours.send_code(tmp_path / "project")


def test_who_sends_nothing_more_holds_no_other_up(site: Site, url: str, ada: httpx.Client) -> None:
    address, slow = urlsplit(url), bearer(site, "eve", "vision", MEMBER)
    head = (
        f"POST /v1/code/chunks HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: {slow['Authorization']}\r\nContent-Length: 1000\r\n\r\n."
    )
    with ExitStack() as opened:
        for _ in range(8):
            made = socket.create_connection((address.hostname, address.port or 80), timeout=30)
            opened.enter_context(made).sendall(head.encode())
        # The gateway has read what they sent once it has answered to somebody who came later.
        with asking(url, slow) as later:
            assert later.get("/nodes").status_code == 200
        assert ada.post("/code/chunks", content=frames(b"more"), timeout=20).json() == {"new": 1}
