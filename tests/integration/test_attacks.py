"""Attacks on the gateway that no other test has: the table is docs/development/attacks.md."""

import gzip
import json
import socket
from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

import httpx
import pytest
from sqlalchemy import text
from sqlmodel import SQLModel

from headway.model.access import token_digest
from headway.site import Site
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.on_ledger import enqueue

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
SQL = (
    "' OR 1=1 --", "'; DROP TABLE run; --", '" OR ""="', "r1') UNION SELECT * FROM accesstoken --",
    "%", "_", "r%", "\\", "1; SELECT pg_sleep(9)",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("attacks")
    made = site_in(folder)
    enqueue(made.ledger, "r1", JOB, name="canary", owner="eve", team="speech")
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    with serving(site) as address:
        yield address


@pytest.fixture(scope="module")
def ada(site: Site, url: str) -> Iterator[httpx.Client]:
    """A member of another team than the canary's."""
    headers = bearer(site, "ada", "vision", MEMBER)
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client


@pytest.mark.parametrize("text", SQL)
def test_sql_in_what_is_asked_is_only_text(
    ada: httpx.Client, site: Site, url: str, text: str
) -> None:
    part = quote(text, safe="")
    for path in (f"/v1/runs/{part}", f"/v1/runs/{part}/progress"):
        answer = ada.get(path)
        assert answer.status_code == 404, answer.text
        assert "canary" not in answer.text
    assert ada.post(f"/v1/runs/{part}/cancel", json={}).status_code == 404
    assert ada.get("/v1/runs", params={"limit": text}).status_code == 422
    answer = ada.post("/v1/runs", json={"job": JOB | {"name": text}})
    assert answer.status_code == 422
    stranger = httpx.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer hwt_{text}"})
    assert stranger.status_code in {401, 429}
    assert site.ledger.runs.find("canary").owner == "eve"


NUL = "%00"


@pytest.mark.parametrize("text", [NUL, f"canary{NUL}", "x" * 60_000, quote("\u202e" * 2000)])
def test_what_no_database_takes_is_not_asked_of_it(ada: httpx.Client, text: str) -> None:
    """PostgreSQL takes no NUL, and SQLite no long pattern: both would count as out of reach."""
    for path in ("runs/{}", "runs/{}/log", "runs/{}/outputs/x", "runs/{}/why", "arrays/{}"):
        answer = ada.get(f"/v1/{path.format(text)}")
        assert answer.status_code == 404, answer.text
    assert ada.get(f"/v1/queue?pool={text}").status_code == 422
    assert ada.get(f"/v1/usage?user={text}").status_code == 422
    ids = {"flow_run_ids": [unquote(text)]}
    # A NUL is refused before it is asked whose run that is.
    refused = 422 if NUL in text else 403
    assert ada.post("/api/ui/flow_runs/count-task-runs", json=ids).status_code == refused


def test_a_packed_body_is_not_unpacked(ada: httpx.Client) -> None:
    """A few kilobytes might unpack to gigabytes."""
    packed = gzip.compress(json.dumps({"job": JOB, "x": " " * 10**6}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = ada.post("/v1/runs", content=packed, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("body: got")


def test_a_token_counts_in_one_place_alone(ada: httpx.Client, url: str) -> None:
    token = ada.headers["authorization"].removeprefix("Bearer ")
    cases: list[tuple[list[tuple[str, str]], str]] = [
        ([], f"?token={token}&access_token={token}"),
        ([("X-Api-Key", token)], ""),
        ([("Authorization", f"Basic {token}")], ""),
        ([("Authorization", token)], ""),
        ([("Proxy-Authorization", f"Bearer {token}")], ""),
        ([("Authorization", "Bearer x"), ("Authorization", f"Bearer {token}")], ""),
        ([("Authorization", f"Bearer {token[:-1]}")], ""),
        ([("Authorization", f"Bearer {token} {token}")], ""),
        ([("Cookie", f"other={token}")], ""),
    ]
    for headers, query in cases:
        answer = httpx.get(f"{url}/v1/runs{query}", headers=headers)
        assert answer.status_code in {401, 429}, (headers, answer.text)
    assert ada.get("/v1/runs").status_code == 200


def test_what_the_ledger_keeps_of_a_token_lets_nobody_in(ada: httpx.Client, url: str) -> None:
    digest = token_digest(ada.headers["authorization"].removeprefix("Bearer "))
    for shown in (digest, f"hwt_{digest}", f"hwt_{digest[:43]}"):
        answer = httpx.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {shown}"})
        assert answer.status_code in {401, 429}


def test_a_websocket_is_not_let_in(ada: httpx.Client) -> None:
    address = urlsplit(str(ada.base_url))
    request = (
        f"GET /api/events/in HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade, close\r\nAuthorization: {ada.headers['authorization']}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(request.encode())
        answer = connection.recv(65536).decode()
    assert int(answer.split()[1]) in {400, 403, 404, 426}, answer


def test_the_login_repeats_nothing(url: str) -> None:
    given = "<script>alert(1)</script>"
    answer = httpx.post(f"{url}/v1/login", data={"token": given, given: given})
    assert answer.status_code == 401
    assert "alert" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_no_row_of_the_ledger_has_a_token(site: Site, ada: httpx.Client) -> None:
    token = ada.headers["authorization"].removeprefix("Bearer ")
    with site.ledger._database.reading() as session:
        kept = [
            row
            for table in SQLModel.metadata.tables
            for (row,) in session.execute(text(f"SELECT t::text FROM {table} t"))
        ]
    assert any("ada" in row for row in kept)
    assert [row for row in kept if token in row] == []
