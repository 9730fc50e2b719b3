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
    assert (found.status_code, found.headers["location"]) == (303, "/v1/login")


def test_the_load_of_the_last_hour_is_told_by_node_and_gpu(client: httpx.Client) -> None:
    found = client.get("/v1/load").json()
    assert misfits(ANSWERS["GET /v1/load"], found) == []
    assert found["period_s"] == 60
    assert [busy for _, busy in found["nodes"][NODE]["host"]] == [0.5]
    assert [busy for _, busy in found["nodes"][NODE]["GPU-0"]] == [0.5]
