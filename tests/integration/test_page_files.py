"""The files of the site's page, as the gateway hands them out."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.answers import ANSWERS, misfits
from headway.gateway.pages import page_files
from headway.model.telemetry import TelemetryPoint
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.lived_in import NODE, populate


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    site = site_in(tmp_path)
    populate(site.ledger)
    busy = [TelemetryPoint(site.ledger.now(), gpu, 60, busy_frac=0.5) for gpu in ("", "GPU-0")]
    site.ledger.telemetry.append(NODE, busy)
    headers = bearer(site, "me", "t", MEMBER)
    with serving(site) as url, httpx.Client(base_url=url, headers=headers) as client:
        yield client
    site.ledger.close()


def test_a_browser_gets_every_file_once(client: httpx.Client) -> None:
    page = client.get("/headway")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name in page_files():
        found = client.get(f"/headway/{name}")
        assert found.status_code == 200
        assert found.headers["x-content-type-options"] == "nosniff"
        rules = found.headers["content-security-policy"]
        assert "script-src 'self';" in rules
        assert "unsafe" not in rules
        again = client.get(f"/headway/{name}", headers={"If-None-Match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_nothing_of_it_comes_from_elsewhere() -> None:
    for name, data in page_files().items():
        addresses = re.findall(r"https?://[^\s\"']+", data.decode())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, name


@pytest.mark.parametrize("name", ["..%2f..%2fapp.py", "%2e%2e/app.py", "app.py", "__init__.py"])
def test_it_has_no_other_files(client: httpx.Client, name: str) -> None:
    found = client.get(f"/headway/{name}")
    assert found.status_code in (403, 404)
    assert b"import" not in found.content


def test_without_a_token_it_leads_to_the_login(client: httpx.Client) -> None:
    del client.headers["Authorization"]
    found = client.get("/headway", headers={"Accept": "text/html"})
    assert (found.status_code, found.headers["location"]) == (303, "/v1/login?next=%2Fheadway")


def test_a_login_leads_to_what_was_asked_for_also_behind_a_wrong_token(
    client: httpx.Client,
) -> None:
    token = client.headers.pop("Authorization").removeprefix("Bearer ")
    asked = "/v1/runs/w1/session?a=%2F&b=1"
    login = client.get(asked, headers={"Accept": "text/html"}).headers["location"]
    form = client.get(login)
    assert "action" not in form.text  # it is sent to where it was shown, `next` with it
    assert client.post(login, data={"token": "hwt_" + "x" * 43}).status_code == 401
    done = client.post(login, data={"token": token})
    assert (done.status_code, done.headers["location"]) == (303, asked)
    for bad in ("//evil.example", "/%5Cevil.example", "https://evil.example"):
        client.cookies.clear()
        done = client.post("/v1/login", params={"next": bad}, data={"token": token})
        assert (done.status_code, done.headers["location"]) == (303, "/headway")
    client.cookies.clear()
    assert client.post(asked, headers={"Accept": "text/html"}, json={}).status_code == 401
    assert client.get("/api/flows", headers={"Accept": "text/html"}).status_code == 401


def test_the_load_of_the_last_hour_is_told_by_node_and_gpu(client: httpx.Client) -> None:
    found = client.get("/v1/load").json()
    assert misfits(ANSWERS["GET /v1/load"], found) == []
    assert found["period_s"] == 60
    assert [busy for _, busy in found["nodes"][NODE]["host"]] == [0.5]
    assert [busy for _, busy in found["nodes"][NODE]["GPU-0"]] == [0.5]
